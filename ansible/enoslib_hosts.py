# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare machines that EnOSlib has reserved, and write the hosts file of a campaign.

Run `python ansible/enoslib_hosts.py machines.yml hosts.yml` with the Python that has EnOSlib
(docs/how-to/enoslib.md). machines.yml is the configuration of EnOSlib's static provider. For
another provider change the two marked lines.
"""

import sys
from pathlib import Path

import enoslib as en
import yaml


def main() -> None:
    """Run ansible/campaign.yml on the machines; it prepares them and writes the hosts file."""
    description, hosts_file = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    settings = yaml.safe_load(description.read_text())
    given = settings.pop("satlab")
    given["campaign_host_identity"] = str(Path(given["campaign_host_identity"]).resolve())
    provider = en.Static(
        en.StaticConf.from_dictionary(settings).finalize()
    )  # another provider: its configuration
    roles, _ = provider.init()  # another provider: waits for the machines
    playbook = Path(__file__).with_name("campaign.yml")
    en.run_ansible(
        [str(playbook)], roles=roles, extra_vars=given | {"campaign_hosts_file": str(hosts_file)}
    )


if __name__ == "__main__":
    main()
