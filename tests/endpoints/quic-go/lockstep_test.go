// SPDX-License-Identifier: GPL-3.0-or-later

// Package lockstep runs quic-go in lock-step with satlab's virtual time (docs/virtual-interface.md), as client or server
// by the set-up. quic-go takes its time from the package time, whose clock is virtual within testing/synctest: therefore
// this is a test binary. Build: make. Start: ./lockstep; file descriptor 0 is the socket to satlab.
package lockstep

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
	_ "unsafe" // for linkname

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

const (
	protocol    = "satlab/virtual-interface/1"
	stack       = "quic-go 0.65.0"
	period      = 251
	usual       = 64 << 20         // flow control, bytes: more than 250 Mbit/s times 650 ms
	tick        = time.Millisecond // no one can ask synctest for its next timer
	latest      = 32               // a timer is late by at most this part of the time since the last datagram
	longest     = 20 * time.Millisecond
	most        = 1000 // datagrams of a message
	packet      = 1280 // bytes: a full one
	idle        = 10 * time.Minute
	mostGarbage = 16384 // datagrams
)

// window is the flow-control window of a stream and of the connection; RECEIVE_WINDOW in the environment replaces it.
var window = func() uint64 {
	if bytes, err := strconv.ParseUint(os.Getenv("RECEIVE_WINDOW"), 10, 32); err == nil {
		return bytes
	}
	return usual
}()

var self, peer = &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 443}

type setup struct {
	Role, Direction, Certificate, Key string
	Seed                              uint64
	Bytes                             int64
	EarlyData                         bool   `json:"early_data"`
	ServerName                        string `json:"server_name"`
}

type head struct {
	Bytes int `json:"bytes"`
}

type step struct {
	Now       int64 `json:"now_ns"`
	Start     bool
	Datagrams []head
}

type sender struct {
	Window    int     `json:"cwnd_bytes"`
	InFlight  int     `json:"in_flight_bytes"`
	SlowStart bool    `json:"slow_start"`
	Supply    string  `json:"supply"`
	RTT       float64 `json:"rtt_ms"`
	Lost      int     `json:"lost_packets"`
}

type report struct {
	Connected bool    `json:"connected"`
	Requested bool    `json:"requested"`
	EarlyData bool    `json:"early_data"`
	Received  int64   `json:"received_bytes"`
	SHA256    *string `json:"sha256"`
	Error     *string `json:"error"`
	Sender    *sender `json:"sender,omitempty"`
}

type answer struct {
	Timer     int64  `json:"timer_ns"`
	Datagrams []head `json:"datagrams"`
	Report    report `json:"report"`
}

// wire is the packet connection: what satlab delivers, and what the stack sends.
type wire struct {
	mutex    sync.Mutex
	out      [][]byte
	in       chan []byte
	deadline chan struct{}
}

func (w *wire) ReadFrom(buffer []byte) (int, net.Addr, error) {
	select {
	case data := <-w.in:
		return copy(buffer, data), peer, nil
	case <-w.deadline:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

func (w *wire) WriteTo(data []byte, _ net.Addr) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.out = append(w.out, append([]byte(nil), data...))
	return len(data), nil
}

func (w *wire) Close() error                     { return nil }
func (w *wire) LocalAddr() net.Addr              { return self }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }

func (w *wire) take() [][]byte {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	count := min(len(w.out), most)
	taken := w.out[:count]
	w.out = w.out[count:]
	return taken
}

// endpoint is a client or a server, and the report of its current connection. Connections are numbered from 1; each one
// changes only its own report.
type endpoint struct {
	setup
	wire    *wire
	peer    net.Addr
	pair    *quic.Transport
	tls     *tls.Config
	mutex   sync.Mutex
	report  report
	number  int
	active  int64 // ns: when a datagram came or went last
	garbage int   // datagrams since memory was freed
}

func (e *endpoint) sends() bool { return (e.Role == "client") == (e.Direction == "upload") }

func (e *endpoint) change(number int, apply func(*report)) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if number == e.number {
		apply(&e.report)
	}
}

func (e *endpoint) fail(number int, err error) {
	if err == nil {
		return
	}
	text := err.Error()
	e.change(number, func(r *report) {
		if r.SHA256 == nil && (r.Sender == nil || r.Sender.Supply != "done") {
			r.Error = &text
		}
	})
}

// current is the number of the connection that started last.
func (e *endpoint) current() int {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.number
}

// config is also that of all connections of a listener: number returns that of the one that starts.
func (e *endpoint) config(number func() int) *quic.Config {
	return &quic.Config{
		InitialStreamReceiveWindow: window, MaxStreamReceiveWindow: window,
		InitialConnectionReceiveWindow: window, MaxConnectionReceiveWindow: window,
		MaxIdleTimeout: idle, Allow0RTT: true,
		Tracer: func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace {
			return &trace{endpoint: e, number: number()}
		},
	}
}

func (e *endpoint) connect(number int) error {
	ctx := context.Background()
	dial := e.pair.Dial
	if e.EarlyData {
		dial = e.pair.DialEarly
	}
	conn, err := dial(ctx, e.peer, e.tls, e.config(func() int { return number }))
	if err != nil {
		return err
	}
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	verb := map[bool]string{true: "PUT", false: "GET"}[e.sends()]
	if _, err = fmt.Fprintf(stream, "%s /%d\r\n", verb, e.Bytes); err != nil {
		return err
	}
	go func() {
		<-conn.HandshakeComplete()
		used := conn.ConnectionState().Used0RTT
		e.change(number, func(r *report) { r.Connected, r.EarlyData = true, used })
	}()
	if e.sends() {
		if err = e.write(stream, number); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, stream)
	} else {
		stream.Close()
		err = e.read(stream, number)
	}
	if err == nil {
		err = conn.CloseWithError(0, "")
	}
	return err
}

func (e *endpoint) serve(conn *quic.Conn, number int) error {
	go func() { // until then it may send three times what it got
		<-conn.HandshakeComplete()
		e.change(number, func(r *report) { r.Connected = true })
	}()
	stream, err := conn.AcceptStream(context.Background())
	if err != nil {
		return err
	}
	reader := bufio.NewReader(stream)
	if _, err = reader.ReadString('\n'); err != nil {
		return err
	}
	if e.sends() {
		return e.write(stream, number)
	}
	if err = e.read(reader, number); err == nil {
		err = stream.Close()
	}
	return err
}

func (e *endpoint) write(stream *quic.Stream, number int) error {
	e.change(number, func(r *report) { r.Requested = true })
	block := make([]byte, period<<8)
	for index := range block {
		block[index] = byte(index % period)
	}
	for left := e.Bytes; left > 0; {
		part := block[:min(left, int64(len(block)))]
		if _, err := stream.Write(part); err != nil {
			return err
		}
		left -= int64(len(part))
	}
	return stream.Close()
}

func (e *endpoint) read(stream io.Reader, number int) error {
	_, err := io.Copy(&counter{e, number, sha256.New()}, stream)
	return err
}

type counter struct {
	*endpoint
	number int
	hash   hash.Hash
}

func (c *counter) Write(data []byte) (int, error) {
	c.hash.Write(data)
	c.change(c.number, func(r *report) {
		r.Received += int64(len(data))
		if r.Received == c.Bytes {
			sum := hex.EncodeToString(c.hash.Sum(nil))
			r.SHA256 = &sum
		}
	})
	return len(data), nil
}

// trace turns quic-go's events into the state of the sender. quic-go does not say that credit is used up: the trace counts
// the credit of the stream with the payload, and of its connection.
type trace struct {
	*endpoint
	number       int
	credit       int64 // of the connection
	streamCredit int64
	sent         int64 // highest offset on the stream
	isOver       bool  // with the end of the stream
}

func (t *trace) AddProducer() qlogwriter.Recorder { return t }
func (t *trace) SupportsSchemas(string) bool      { return true }
func (t *trace) Close() error                     { return nil }
func (t *trace) RecordEvent(event qlogwriter.Event) {
	if !t.sends() {
		return
	}
	t.change(t.number, func(r *report) {
		if r.Sender == nil {
			r.Sender = &sender{SlowStart: true, Window: 32 * 1280}
		}
		switch event := event.(type) {
		case qlog.MetricsUpdated:
			if event.CongestionWindow != 0 {
				r.Sender.Window = event.CongestionWindow
			}
			if event.SmoothedRTT != 0 {
				r.Sender.RTT = float64(event.SmoothedRTT) / 1e6
			}
			r.Sender.InFlight = event.BytesInFlight
		case qlog.PacketLost:
			r.Sender.Lost++
		case qlog.CongestionStateUpdated:
			r.Sender.SlowStart = event.State == qlog.CongestionStateSlowStart
		case qlog.ParametersSet:
			if event.Initiator == qlog.InitiatorRemote {
				t.open(event)
			}
		case qlog.PacketReceived:
			t.received(event.Frames)
		case qlog.PacketSent:
			t.sentFrames(event.Frames)
		}
		r.Sender.Supply = t.supply()
	})
}

// open takes the peer's first credit: for the client, who opens the stream, that of remote streams.
func (t *trace) open(peer qlog.ParametersSet) {
	t.credit = int64(peer.InitialMaxData)
	t.streamCredit = int64(peer.InitialMaxStreamDataBidiLocal)
	if t.Role == "client" {
		t.streamCredit = int64(peer.InitialMaxStreamDataBidiRemote)
	}
}

func (t *trace) received(frames []qlog.Frame) {
	for _, one := range frames {
		switch frame := one.Frame.(type) {
		case *qlog.MaxDataFrame:
			t.credit = max(t.credit, int64(frame.MaximumData))
		case *qlog.MaxStreamDataFrame:
			t.streamCredit = max(t.streamCredit, int64(frame.MaximumStreamData))
		}
	}
}

func (t *trace) sentFrames(frames []qlog.Frame) {
	for _, one := range frames {
		if frame, ok := one.Frame.(*qlog.StreamFrame); ok {
			t.sent = max(t.sent, frame.Offset+frame.Length)
			t.isOver = t.isOver || frame.Fin
		}
	}
}

// supply is done with the end of the stream, and blocked if the credit does not suffice for another full packet.
func (t *trace) supply() string {
	switch {
	case t.isOver:
		return "done"
	case t.credit > 0 && min(t.credit, t.streamCredit)-t.sent < packet:
		return "blocked"
	default:
		return "slow"
	}
}

func (e *endpoint) begin() {
	e.mutex.Lock()
	e.number++
	e.report = report{}
	number := e.number
	e.mutex.Unlock()
	if e.Role == "client" {
		e.change(number, func(r *report) { r.Requested = e.sends() })
		go func() { e.fail(number, e.connect(number)) }()
	}
}

func (e *endpoint) listen() error {
	listener, err := e.pair.ListenEarly(e.tls, e.config(e.current))
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			number := e.current()
			go func() { e.fail(number, e.serve(conn, number)) }()
		}
	}()
	return nil
}

func newEndpoint(s setup, conn net.PacketConn, peer net.Addr) (*endpoint, error) {
	e := &endpoint{setup: s, peer: peer, pair: &quic.Transport{Conn: conn}}
	if s.Role == "client" {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(s.Certificate))
		cache := tls.NewLRUClientSessionCache(4)
		e.tls = &tls.Config{RootCAs: roots, ServerName: s.ServerName, NextProtos: []string{"hq-interop"}}
		if s.EarlyData {
			e.tls.ClientSessionCache = cache
		}
		return e, nil
	}
	pair, err := tls.X509KeyPair([]byte(s.Certificate), []byte(s.Key))
	if err != nil {
		return nil, err
	}
	e.tls = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"hq-interop"}}
	return e, e.listen()
}

// step lets the time pass until now, with what has arrived, and returns what was sent meanwhile.
func (e *endpoint) step(zero time.Time, s step, arrived [][]byte) (answer, [][]byte) {
	reseed(uint64(s.Now) ^ e.Seed)
	time.Sleep(time.Until(zero.Add(time.Duration(s.Now))))
	if s.Start {
		e.begin()
	}
	synctest.Wait()
	for _, data := range arrived { // one after the other: a goroutine that waits for several things takes any
		e.wire.in <- data
		synctest.Wait()
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	made := answer{Datagrams: []head{}, Report: e.report}
	if e.report.Sender != nil {
		state := *e.report.Sender
		made.Report.Sender = &state
	}
	sent := e.wire.take()
	for _, data := range sent {
		made.Datagrams = append(made.Datagrams, head{len(data)})
	}
	if s.Start || len(arrived) > 0 || len(sent) > 0 {
		e.active = s.Now
	}
	e.collect(len(arrived) + len(sent))
	made.Timer = s.Now + min(max((s.Now-e.active)/latest, tick.Nanoseconds()), longest.Nanoseconds())
	return made, sent
}

// seedScheduler is the runtime's if it was built with the Makefile's overlay, and nil otherwise.
//
//go:linkname seedScheduler runtime.seedScheduler
var seedScheduler func(uint64)

func reseed(seed uint64) {
	if seedScheduler != nil {
		seedScheduler(seed)
	}
}

// collect frees memory between steps alone: it would change the order of goroutines.
func (e *endpoint) collect(datagrams int) {
	if e.garbage += datagrams; e.garbage > mostGarbage {
		e.garbage = 0
		runtime.GC()
	}
}

func receive(pipe *bufio.Reader, message any) error {
	line, err := pipe.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, message)
	}
	return err
}

func send(message any, datagrams [][]byte) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	whole := append(line, '\n')
	for _, data := range datagrams {
		whole = append(whole, data...)
	}
	_, err = os.Stdin.Write(whole)
	return err
}

func TestLockstep(t *testing.T) {
	if flag.NArg() > 0 {
		t.Skip("on the real clock")
	}
	t.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true") // the wire has no buffer of a socket
	runtime.GOMAXPROCS(1) // goroutines run one at a time: with more, repeats differ by who came first
	debug.SetGCPercent(-1)
	pipe := bufio.NewReaderSize(os.Stdin, 1<<20)
	var s setup
	if err := receive(pipe, &s); err != nil {
		t.Fatal(err)
	}
	cryptotest.SetGlobalRandom(t, s.Seed<<1|uint64(strings.Index("cs", s.Role[:1])))
	synctest.Test(t, func(t *testing.T) {
		w := &wire{in: make(chan []byte, 1<<16), deadline: make(chan struct{})}
		e, err := newEndpoint(s, w, peer)
		if err != nil {
			t.Fatal(err)
		}
		e.wire = w
		zero := time.Now()
		if err = send(map[string]string{"interface": protocol, "name": stack}, nil); err != nil {
			t.Fatal(err)
		}
		for {
			var next step
			if err = receive(pipe, &next); err != nil {
				os.Exit(0)
			}
			arrived := make([][]byte, len(next.Datagrams))
			for index, one := range next.Datagrams {
				arrived[index] = make([]byte, one.Bytes)
				if _, err = io.ReadFull(pipe, arrived[index]); err != nil {
					os.Exit(0)
				}
			}
			if err = send(e.step(zero, next, arrived)); err != nil {
				os.Exit(1)
			}
		}
	})
}
