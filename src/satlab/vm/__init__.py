# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab: each node of the path is a machine, brought up by Vagrant and provisioned by Ansible
over ssh.
"""
