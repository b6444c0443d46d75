// SPDX-License-Identifier: GPL-3.0-or-later

package lockstep

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
)

// plain hides that a connection is a UDP socket: no segmentation offload and no search for the path MTU, as in lock-step.
type plain struct{ net.PacketConn }

const buffer = 4 << 20

// TestTransfer runs the client or the server of the same package over UDP on the real clock, for comparisons of both.
// Start: ./lockstep server HOST PORT BYTES CERTIFICATE KEY, then ./lockstep client HOST PORT BYTES CA NAME. The client ends
// with status 0 when BYTES have arrived.
func TestTransfer(t *testing.T) {
	if flag.NArg() == 0 {
		t.Skip("in lock-step")
	}
	if err := transfer(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func transfer(words []string) error {
	if len(words) != 6 {
		return fmt.Errorf("six words are needed, not %d", len(words))
	}
	s := setup{Role: words[0], Direction: "download"}
	var err error
	if s.Bytes, err = strconv.ParseInt(words[3], 10, 64); err != nil {
		return err
	}
	certificate, err := os.ReadFile(words[4])
	if err != nil {
		return err
	}
	s.Certificate = string(certificate)
	server, err := net.ResolveUDPAddr("udp4", net.JoinHostPort(words[1], words[2]))
	if err != nil {
		return err
	}
	local := &net.UDPAddr{}
	if s.Role == "client" {
		s.ServerName = words[5]
	} else {
		local = server
		key, err := os.ReadFile(words[5])
		if err != nil {
			return err
		}
		s.Key = string(key)
	}
	socket, err := net.ListenUDP("udp4", local)
	if err != nil {
		return err
	}
	if err = socket.SetReadBuffer(buffer); err != nil {
		return err
	}
	e, err := newEndpoint(s, plain{socket}, server)
	if err != nil {
		return err
	}
	e.number = 1
	if s.Role == "client" {
		return e.connect(1)
	}
	select {}
}
