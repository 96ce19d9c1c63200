// Command main serves the CSI driver for tests until it gets SIGTERM.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berthd/berth/test/csidriver"
)

func main() {
	d := &csidriver.Driver{OnCrash: func() { os.Exit(9) }}
	flag.StringVar(&d.Dir, "dir", "", "the driver's directory")
	flag.StringVar(&d.Registry, "registry", "", "the node's directory of plugins' sockets")
	flag.StringVar(&d.Name, "name", "test.berth.dev", "the driver's name")
	flag.StringVar(&d.NodeID, "node-id", "", "what the driver calls the node")
	flag.Int64Var(&d.MaxVolumes, "max-volumes", 0, "how many volumes the node can have")
	can := flag.String("can", "", "what it can do, separated by commas: STAGE_UNSTAGE_VOLUME, …")
	topology := flag.String("topology", "", "KEY=VALUE that says where the node is")
	flag.Parse()
	for name := range strings.SplitSeq(*can, ",") {
		if t, ok := csiapi.NodeServiceCapability_RPC_Type_value[name]; ok {
			d.Can = append(d.Can, csiapi.NodeServiceCapability_RPC_Type(t))
		}
	}
	if key, value, ok := strings.Cut(*topology, "="); ok {
		d.Topology = map[string]string{key: value}
	}
	if err := d.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	<-stop
	d.Stop()
}
