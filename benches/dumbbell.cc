// SPDX-License-Identifier: GPL-3.0-or-later
// CUBIC flows from one node to another in ns-3, for `python -m benches peers`:
//
//     dumbbell --flows=4 --seconds=30 --rate=20e6 --delay=0.25 --back=5e6 --queue=1250000 --loss=0.01
//
// Prints the packets that entered the link, of both directions. One wire, drop-tail queues, losses
// of the forward direction behind the queue. Packets have 1280 bytes, as those of satvirtual have.
#include <cinttypes>
#include <cstdio>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

static uint64_t packets = 0;

static void Entered(Ptr<const Packet>) { ++packets; }

int main(int argc, char** argv) {
  uint32_t flows = 1, queue = 1250000;
  double seconds = 30, rate = 20e6, back = 5e6, delay = 0.25, loss = 0;
  CommandLine line;
  line.AddValue("flows", "flows", flows);
  line.AddValue("seconds", "simulated time, s", seconds);
  line.AddValue("rate", "forward rate, bit/s", rate);
  line.AddValue("back", "return rate, bit/s", back);
  line.AddValue("delay", "delay of each direction, s", delay);
  line.AddValue("queue", "limit of each queue, bytes", queue);
  line.AddValue("loss", "share of forward packets that are lost", loss);
  line.Parse(argc, argv);

  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1228));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(8 << 20));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(8 << 20));
  Config::SetDefault("ns3::DropTailQueue<Packet>::MaxSize",
                     QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, queue)));

  NodeContainer nodes(2);  // 0 sends
  PointToPointHelper wire;
  wire.SetChannelAttribute("Delay", TimeValue(Seconds(delay)));
  NetDeviceContainer devices = wire.Install(nodes);
  for (uint32_t side : {0, 1}) {
    auto device = DynamicCast<PointToPointNetDevice>(devices.Get(side));
    device->SetDataRate(DataRate(static_cast<uint64_t>(side ? back : rate)));
    device->TraceConnectWithoutContext("MacTx", MakeCallback(&Entered));
  }
  if (loss > 0) {
    Ptr<RateErrorModel> losses = CreateObject<RateErrorModel>();
    losses->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
    losses->SetRate(loss);
    DynamicCast<PointToPointNetDevice>(devices.Get(1))->SetReceiveErrorModel(losses);
  }
  InternetStackHelper().Install(nodes);
  Ipv4AddressHelper addresses("198.18.1.0", "255.255.255.0");
  Ipv4InterfaceContainer at = addresses.Assign(devices);
  TrafficControlHelper().Uninstall(devices);  // FQ-CoDel above the device's own queue

  for (uint32_t flow = 0; flow < flows; ++flow) {
    uint16_t port = 5000 + flow;
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    sink.Install(nodes.Get(1));
    BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(at.GetAddress(1), port));
    source.SetAttribute("MaxBytes", UintegerValue(0));
    source.Install(nodes.Get(0)).Start(Seconds(0.05 * flow));
  }
  Simulator::Stop(Seconds(seconds));
  Simulator::Run();
  std::printf("%" PRIu64 "\n", packets);
  Simulator::Destroy();
}
