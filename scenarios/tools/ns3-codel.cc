// Packets that ns-3's CoDel drops before a line of 12 Mbit/s: ns3-codel PAYLOAD_MBIT SECONDS.
#include <cstdio>
#include <cstdlib>

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

using namespace ns3;

int main(int argc, char **argv) {
    if (argc != 3) return 64;
    const double rate = std::atof(argv[1]) * 1e6, seconds = std::atof(argv[2]);
    NodeContainer nodes(2);
    PointToPointHelper link;
    // 1500 bytes of IP and 2 of PPP take 1 ms; behind CoDel only the packet being sent waits.
    link.SetDeviceAttribute("DataRate", StringValue("12016kbps"));
    link.SetChannelAttribute("Delay", StringValue("10ms"));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    NetDeviceContainer devices = link.Install(nodes);
    InternetStackHelper().Install(nodes);
    TrafficControlHelper control;
    control.SetRootQueueDisc("ns3::CoDelQueueDisc", "MaxSize", StringValue("5000p"));
    QueueDiscContainer queues = control.Install(devices);
    Ipv4AddressHelper addresses("198.18.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    PacketSinkHelper sink("ns3::UdpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 9));
    sink.Install(nodes.Get(1));
    UdpClientHelper client(interfaces.GetAddress(1), 9);
    client.SetAttribute("PacketSize", UintegerValue(1472));
    client.SetAttribute("MaxPackets", UintegerValue(4294967295u));
    client.SetAttribute("Interval", TimeValue(Seconds(1472 * 8 / rate)));
    ApplicationContainer sender = client.Install(nodes.Get(0));
    sender.Start(Seconds(1));
    sender.Stop(Seconds(1 + seconds));
    // Until the queue is empty.
    Simulator::Stop(Seconds(61 + seconds));
    Simulator::Run();
    std::printf("{\"ns3_dropped\": %u}\n", queues.Get(0)->GetStats().nTotalDroppedPackets);
    Simulator::Destroy();
}
