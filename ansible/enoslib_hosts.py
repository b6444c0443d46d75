# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that EnOSlib has, as hosts of a campaign (docs/how-to/enoslib.md).

`python ansible/enoslib_hosts.py machines.yml hosts.yml` with the Python that has EnOSlib. The first
file is the configuration of EnOSlib's static provider; other providers differ in the two lines that
are marked.
"""

import sys
from pathlib import Path

import enoslib as en
import yaml


def main() -> None:
    """Prepare the hosts with ansible/campaign.yml, which writes the file of hosts."""
    description, hosts_file = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    settings = yaml.safe_load(description.read_text())
    given = settings.pop("satlab")
    given["campaign_host_identity"] = str(Path(given["campaign_host_identity"]).resolve())
    provider = en.Static(
        en.StaticConf.from_dictionary(settings).finalize()
    )  # of another provider: its configuration
    roles, _ = provider.init()  # of another provider: waits for the machines
    playbook = Path(__file__).with_name("campaign.yml")
    en.run_ansible(
        [str(playbook)], roles=roles, extra_vars=given | {"campaign_hosts_file": str(hosts_file)}
    )


if __name__ == "__main__":
    main()
