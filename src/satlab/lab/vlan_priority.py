# SPDX-License-Identifier: GPL-3.0-or-later
"""An eBPF program that tags packets with the priority of their DSCP: IEEE 802.1Q, VLAN 0.

OpenSAND finds the class of a packet by this priority. A VLAN interface with a map of priorities
would do the same, but not every kernel has the driver 8021q.
"""

import ctypes
import os
import platform
import socket
import struct

_BPF = {"x86_64": 321, "aarch64": 280}
"""Number of the system call bpf(2), by machine."""
_PROG_LOAD, _SCHED_CLS = 5, 3
_PROTOCOL = 16
"""Offset of `protocol`, in network order, in `struct __sk_buff` (<linux/bpf.h>)."""
_ETHERNET_BYTES = 14
_VLAN_PUSH = 18
"""bpf_skb_vlan_push(skb, protocol, tci); protocol 0 stands for 802.1Q."""
_IPV4, _IPV6 = socket.htons(0x0800), socket.htons(0x86DD)


def _instruction(code: int, registers: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """Encode an instruction (RFC 9669, section 3.1); `registers`: destination + 16 x source."""
    return struct.pack("=BBhi", code, registers, offset, value)


PROGRAM = b"".join(
    (
        _instruction(0xBF, 0x16),  # r6 = r1, the packet
        _instruction(0x61, 0x67, _PROTOCOL),  # r7 = its protocol
        _instruction(0x28, 0, 0, _ETHERNET_BYTES),  # r0 = the first two bytes of its IP header
        _instruction(0x15, 0x07, 2, _IPV4),
        _instruction(0x55, 0x07, 9, _IPV6),  # neither: leave
        _instruction(0x77, 0x00, 0, 4),  # behind the traffic class come 4 bits of the flow label
        _instruction(0x77, 0x00, 0, 5),
        _instruction(0x57, 0x00, 0, 7),  # r0 = the class selector, upper three bits of the DSCP
        _instruction(0x15, 0x00, 5, 0),  # none: leave
        _instruction(0xBF, 0x03),
        _instruction(0x67, 0x03, 0, 13),  # r3 = the tag
        _instruction(0xBF, 0x61),
        _instruction(0xB7, 0x02),
        _instruction(0x85, 0, 0, _VLAN_PUSH),
        _instruction(0xB7, 0x00),  # pass the packet on
        _instruction(0x95),
    )
)


def load() -> int:
    """Load the program into the kernel; return its file descriptor, for a filter of the kind `bpf`.

    Raises:
        OSError: the kernel refuses it.
    """
    code, licence = ctypes.create_string_buffer(PROGRAM), ctypes.create_string_buffer(b"GPL")
    fields = ctypes.addressof(code), ctypes.addressof(licence)
    attributes = struct.pack("=IIQQ24x", _SCHED_CLS, len(PROGRAM) // 8, *fields)
    call = ctypes.CDLL(None, use_errno=True).syscall
    descriptor = call(_BPF[platform.machine()], _PROG_LOAD, attributes, len(attributes))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(descriptor)
