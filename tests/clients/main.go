// Command clients is an MCP server that runs other programs when told, those that make connections: it is how the tests
// see what a real program sees of the network.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/pfar/pfar/tests/stdio"
)

// patience is how long a program may take on a machine that is busy.
const patience = 3 * time.Minute

func main() {
	if len(os.Args) > 2 {
		begin := time.Now()
		said := reach(os.Args[1], os.Args[2])
		fmt.Printf("%s (%d ms)\n", said, time.Since(begin).Milliseconds())
		return
	}
	s := &stdio.Server{Name: "clients"}
	s.SetTools([]stdio.Tool{{
		Name: "run", Description: "runs a program and says what it wrote",
		Schema: `{"type":"object","properties":{"argv":{"type":"array","items":{"type":"string"}},"env":{"type":"array","items":{"type":"string"}},"proxy":{"type":"boolean"}},"required":["argv"]}`,
		Call:   run,
	}})
	if err := s.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

// run has a program run with or without the variables that name a proxy.
func run(arguments json.RawMessage) (string, error) {
	var a struct {
		Argv  []string `json:"argv"`
		Env   []string `json:"env"`
		Proxy bool     `json:"proxy"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil {
		return "", err
	}
	if a.Argv[0] == "go" {
		a.Argv = append([]string{"/proc/self/exe"}, a.Argv[1:]...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, a.Argv[0], a.Argv[1:]...)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); a.Proxy || !strings.Contains(strings.ToLower(name), "proxy") {
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(c.Env, a.Env...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	begin := time.Now()
	if err := c.Run(); err != nil {
		fmt.Fprintf(&out, " (%v)", err)
	}
	b, err := json.Marshal(struct {
		Wrote   string  `json:"wrote"`
		Seconds float64 `json:"seconds"`
	}{out.String(), time.Since(begin).Seconds()})
	return string(b), err
}

// reach is the client in Go: http gets a URL, tcp and udp say hello to an address.
func reach(how, target string) string {
	if how == "http" {
		resp, err := http.Get(target)
		if err != nil {
			return "error: " + err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return "error: " + err.Error()
		}
		return fmt.Sprintf("%d %s", resp.StatusCode, b)
	}
	c, err := net.DialTimeout(how, target, patience)
	if err != nil {
		return "error: " + err.Error()
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return "error: " + err.Error()
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "error: " + err.Error()
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b[:n])
}
