package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/units/systemd"
)

// gateway is what is known of the gateway's service, and of its TCP port, which systemd listens on. While another
// program has the port, clients of HTTP alone are without pfar, and it is taken once it is free.
type gateway struct {
	inbox
	log       *slog.Logger
	around    around
	socket    string // of local clients
	clientele *clientele
	link      *systemd.Link // nil: pfard itself listens

	endpoint string // its URL; "": there is none
	down     bool
	fault    string // why clients do not get in at the port; "": they do, or there is none
	retaking bool
}

const (
	portTime = 3 * time.Second // between looks whether the port is free: the kernel tells nobody

	fromEdit = "pfar-gateway-http.socket is wrong, so clients of HTTP do not get in: " +
		"systemctl status pfar-gateway-http.socket says why"
)

// endpointAt is the gateway's URL; "" for none.
func endpointAt(address string) string {
	if address == "" {
		return ""
	}
	return "http://" + address + "/mcp"
}

// turned takes it that the gateway has come up, with other sockets perhaps, or gone down.
func (g *gateway) turned(ctx context.Context, running bool) {
	if g.link != nil {
		if p, err := gatewayPort(ctx, g.link); err == nil {
			g.post(func() { g.portTurned(ctx, p) })
		}
	}
	g.post(func() {
		g.down = !running
		g.clientele.reach(g.socket, g.log) // it may be another one
		g.around.tell()
	})
}

// portTurned takes what systemd knows of the port.
func (g *gateway) portTurned(ctx context.Context, p systemd.Port) {
	g.endpoint, g.fault = endpointAt(p.Address), ""
	if !p.Failed {
		return
	}
	g.endpoint, g.fault = "", fromEdit
	address, err := netip.ParseAddrPort(p.Address)
	if err != nil {
		return
	}
	g.fault = fmt.Sprintf("another program has the port %s, so clients of HTTP do not get in; "+
		"pfar takes it as soon as it is free, or edit pfar-gateway-http.socket", p.Address)
	if !g.retaking {
		g.retaking = true
		g.log.Error("the gateway's port is taken", "address", p.Address,
			"remedy", "end the program that has it (ss -ltnp), or systemctl edit pfar-gateway-http.socket")
		go g.retake(ctx, address)
	}
}

// retake waits until nobody listens on a port, and has systemd take it then.
func (g *gateway) retake(ctx context.Context, address netip.AddrPort) {
	ticks := time.NewTicker(portTime)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		p, err := gatewayPort(ctx, g.link)
		if err == nil && p.Failed && p.Address == address.String() {
			if taken, err := listened(address.Port()); err != nil || taken {
				continue
			}
			err = takePort(ctx, g.link)
		} else if err == nil {
			g.post(func() {
				g.retaking = false
				g.portTurned(ctx, p)
				g.around.tell()
			})
			return
		}
		if err != nil {
			g.log.Warn("taking the gateway's port, trying again", "error", err)
		}
	}
}

func takePort(ctx context.Context, link *systemd.Link) error {
	bus, err := link.Bus(ctx)
	if err != nil {
		return err
	}
	return bus.TakePort(ctx)
}

// gatewayPort asks for the TCP address that the gateway listens on, which an administrator may have changed or taken
// away.
func gatewayPort(ctx context.Context, link *systemd.Link) (systemd.Port, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	bus, err := link.Bus(ctx)
	if err != nil {
		return systemd.Port{}, err
	}
	return bus.Port(ctx)
}

// listened reports whether somebody listens on a TCP port of this machine, on whatever address. pfard may have no
// socket to try it with.
func listened(port uint16) (bool, error) {
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(path)
		if os.IsNotExist(err) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return false, err
		}
		taken, err := hasListener(f, port)
		f.Close()
		if taken || err != nil {
			return taken, err
		}
	}
	return false, nil
}

// hasListener reads a table of TCP sockets (proc_net_tcp.rst): "0: 0100007F:1CF9 00000000:0000 0A ...", in hexadecimal.
func hasListener(table io.Reader, port uint16) (bool, error) {
	const listening = "0A"
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[3] != listening {
			continue
		}
		_, digits, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(digits, 16, 16); err == nil && uint16(n) == port {
			return true, nil
		}
	}
	return false, lines.Err()
}
