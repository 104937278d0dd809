package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const patience = 2 * time.Second

func networkAttacks() list {
	l := list{
		{Name: "connect", Kind: "network", Target: "host and port", try: func(t string) verdict { return dial("tcp", t) }},
		{Name: "unix", Kind: "sockets", Target: "a path, or @ and an abstract name", try: func(t string) verdict { return dial("unix", t) }},
		{Name: "datagram", Kind: "network", Target: "host and port that answer a datagram", try: datagram},
		{Name: "resolve", Kind: "network", Target: "a name, and @ and a server's host and port if not that of the system", try: resolve},
		{Name: "interfaces", Kind: "network", try: interfaces},
		{Name: "routes", Kind: "network", try: routes},
		{Name: "proxy-connect", Kind: "egress", Target: "host and port to ask the proxy for", try: proxyConnect},
		{Name: "proxy-get", Kind: "egress", Target: "a URL to ask the proxy for", try: proxyGet},
		{Name: "page", Kind: "egress", Target: "the link of a one-time page of pfar's", try: openPage},
		{Name: "descriptor-passing", Kind: "descriptors", inServer: true, try: passDescriptor},
		{Name: "shared-memory", Kind: "others", Target: "the key of a System V segment", try: sharedMemory},
	}
	for _, s := range []struct {
		name                   string
		family, kind, protocol int
	}{
		{"icmp", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"icmp6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		{"packet", unix.AF_PACKET, unix.SOCK_RAW, 0},
		{"netlink", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"crypto", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"mptcp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
		{"udplite", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
	} {
		l = append(l, attack{Name: "socket-" + s.name, Kind: "network", try: func(string) verdict {
			fd, err := unix.Socket(s.family, s.kind, s.protocol)
			if err == nil {
				unix.Close(fd)
			}
			return outcome(err)
		}})
	}
	return l
}

func dial(network, address string) verdict {
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return blocked("%v", err)
	}
	c.Close()
	return succeeded("connected to %s", address)
}

func datagram(address string) verdict {
	c, err := net.DialTimeout("udp", address, patience)
	if err != nil {
		return blocked("%v", err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience / 4))
	if _, err := c.Write([]byte("hello")); err != nil {
		return blocked("%v", err)
	}
	if _, err := c.Read(make([]byte, 16)); err != nil {
		return blocked("%v", err)
	}
	return succeeded("%s answered", address)
}

func resolve(target string) verdict {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name, server, given := strings.Cut(target, "@")
	r := net.Resolver{PreferGo: true}
	if given {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server)
		}
	}
	addresses, err := r.LookupHost(ctx, name)
	if err != nil {
		return blocked("%v", err)
	}
	return succeeded("%s is %v", name, addresses)
}

func interfaces(string) verdict {
	b, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return blocked("%v", err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name != "lo" {
			return succeeded("there is %s", name)
		}
	}
	return blocked("loopback only")
}

func routes(string) verdict {
	b, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return blocked("%v", err)
	}
	for _, line := range strings.Split(string(b), "\n")[1:] {
		if device, _, _ := strings.Cut(line, "\t"); device != "" && device != "lo" {
			return succeeded("%s", strings.TrimSpace(line))
		}
	}
	b, _ = os.ReadFile("/proc/net/ipv6_route")
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 10 && f[9] != "lo" {
			return succeeded("%s", line)
		}
	}
	return blocked("no route but over lo")
}

// dialProxy connects to the proxy that the environment names.
func dialProxy() (net.Conn, error) {
	u, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("HTTPS_PROXY is %q", os.Getenv("HTTPS_PROXY"))
	}
	c, err := net.DialTimeout("tcp", u.Host, patience)
	if err == nil {
		c.SetDeadline(time.Now().Add(5 * patience))
	}
	return c, err
}

func proxyConnect(address string) verdict {
	return askProxy(fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address))
}

func proxyGet(target string) verdict {
	u, err := url.Parse(target)
	if err != nil {
		return impossible(err)
	}
	return askProxy(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, u.Host))
}

func askProxy(request string) verdict {
	c, err := dialProxy()
	if err != nil {
		return impossible(err) // a server with a proxy that is not there would prove nothing
	}
	defer c.Close()
	if _, err := c.Write([]byte(request)); err != nil {
		return blocked("%v", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return blocked("%v", err)
	}
	defer resp.Body.Close()
	b := make([]byte, 256)
	n, _ := resp.Body.Read(b)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return blocked("%s: %s", resp.Status, b[:n])
	}
	return succeeded("%s", resp.Status)
}

// openPage looks at a page in each way that there is: directly, and by the proxy as a tunnel and as a request.
func openPage(link string) verdict {
	u, err := url.Parse(link)
	if err != nil || u.Port() == "" {
		return impossible(fmt.Errorf("%q is no link: %v", link, err))
	}
	const get = "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n" // the page wants this host
	var tried []string
	for way, begin := range map[string]func() (net.Conn, error){
		"directly": func() (net.Conn, error) {
			c, err := net.DialTimeout("tcp", u.Host, patience)
			if err == nil {
				fmt.Fprintf(c, get, u.Path, u.Port())
			}
			return c, err
		},
		"by a tunnel": func() (net.Conn, error) {
			c, err := dialProxy()
			if err == nil {
				fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n"+get, u.Host, u.Path, u.Port())
			}
			return c, err
		},
		"by the proxy": func() (net.Conn, error) {
			c, err := dialProxy()
			if err == nil {
				fmt.Fprintf(c, get, link, u.Port())
			}
			return c, err
		},
	} {
		c, err := begin()
		if err != nil {
			tried = append(tried, err.Error())
			continue
		}
		c.SetDeadline(time.Now().Add(2 * patience))
		b, err := io.ReadAll(io.LimitReader(c, 1<<17))
		c.Close()
		if strings.Contains(string(b), "pfar on this computer") {
			return succeeded("%s: the page is there", way)
		}
		tried = append(tried, fmt.Sprintf("%s: %.60q, %v", way, b, err))
	}
	return blocked("%q", tried)
}

// passDescriptor sends the root directory out over whatever reaches another process: the standard streams, should they
// be sockets, and the proxy.
func passDescriptor(string) verdict {
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return impossible(err)
	}
	defer unix.Close(dir)
	fds := map[string]int{"stdin": 0, "stdout": 1, "stderr": 2}
	if c, err := dialProxy(); err == nil {
		defer c.Close()
		if f, err := c.(*net.TCPConn).File(); err == nil {
			defer f.Close()
			fds["the proxy"] = int(f.Fd())
		}
	}
	for name, fd := range fds {
		family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil || family != unix.AF_UNIX {
			continue // no other family carries descriptors (unix(7))
		}
		if err := unix.Sendmsg(fd, []byte("\n"), unix.UnixRights(dir), nil, 0); err == nil {
			return succeeded("sent / over %s", name)
		}
	}
	return blocked("nothing that is open carries descriptors")
}

func sharedMemory(key string) verdict {
	n, err := strconv.Atoi(key)
	if err != nil {
		return impossible(err)
	}
	_, err = unix.SysvShmGet(n, 1, 0)
	return outcome(err)
}
