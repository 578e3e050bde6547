# Parallel TCP connections through one bottleneck in ns-2: what the lab's simulated TCP is compared with.
#
#   ns parallel.tcl QUEUE WINDOW CONNECTIONS ONE_WAY_MS SECONDS
#
# QUEUE is DropTail or RED; WINDOW is the receiver's, in packets. Reno with selective acknowledgements, 100 Mbit/s, 100 packets
# of queue, packets of 1500 bytes. Prints, from the end of the first tenth of the time on, the goodput in bits a second, and
# the share of packets that were sent again.

lassign $argv queue window connections one_way_ms seconds

set ns [new Simulator]
set sender [$ns node]
set receiver [$ns node]
# Floyd and Jacobson's parameters, as ns-2's are.
Queue/RED set thresh_ 5
Queue/RED set maxthresh_ 15
Queue/RED set linterm_ 10
Queue/RED set q_weight_ 0.002
Queue/RED set gentle_ true
# A drop may follow another at once, as in the paper; ns-2 by itself spaces them further apart.
Queue/RED set wait_ false
Queue/RED set bytes_ false
Queue/RED set queue_in_bytes_ false
Queue/RED set mean_pktsize_ 1500
$ns simplex-link $sender $receiver 100Mb ${one_way_ms}ms $queue
$ns simplex-link $receiver $sender 100Mb ${one_way_ms}ms DropTail
$ns queue-limit $sender $receiver 100

set start [new RNG]
$start seed 1
set agents {}
for {set i 0} {$i < $connections} {incr i} {
    set tcp [new Agent/TCP/Sack1]
    $tcp set packetSize_ 1460
    $tcp set window_ $window
    # Hosts are not exact: up to the time of a packet, at random (Floyd and Jacobson's phase effects).
    $tcp set overhead_ 0.00012
    set sink [new Agent/TCPSink/Sack1]
    $ns attach-agent $sender $tcp
    $ns attach-agent $receiver $sink
    $ns connect $tcp $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ns at [$start uniform 0 1] "$ftp start"
    lappend agents $tcp
}

proc acknowledged {} {
    global agents
    set sum 0
    foreach tcp $agents { incr sum [expr {max(0, [$tcp set ack_] + 1)}] }
    return $sum
}

# Packets sent in all, and those of them that were sent again.
proc counted {name} {
    global agents
    set sum 0
    foreach tcp $agents { incr sum [$tcp set $name] }
    return $sum
}

proc finish {} {
    global before sent_before again_before seconds
    set goodput [expr {round(([acknowledged] - $before) * 1460 * 8 / ($seconds * 0.9))}]
    set sent [expr {[counted ndatapack_] - $sent_before}]
    puts "$goodput [expr {double([counted nrexmitpack_] - $again_before) / $sent}]"
    exit 0
}

$ns at [expr {$seconds * 0.1}] {
    set before [acknowledged]
    set sent_before [counted ndatapack_]
    set again_before [counted nrexmitpack_]
}
$ns at $seconds finish
$ns run
