# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab: the path as machines of their own, brought up by Vagrant, provisioned by Ansible over
ssh.
"""
