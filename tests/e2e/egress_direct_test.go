package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestEgressDirect runs the same programs at the same place without pfar. What TestEgress wants to be refused is
// reached here: it is not for want of a way that it is refused there.
func TestEgressDirect(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	t.Parallel()
	in, wrap := startInternet(t)
	c := findClients(t)
	cmd := exec.Command(wrap[0], append(wrap[1:], program(t, "clients"))...)
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+in.authority, "REQUESTS_CA_BUNDLE="+in.authority, "SSL_CERT_FILE="+in.authority)
	cmd.Stderr = &output{}
	stdin, err := cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	defer func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the clients: %v: %s", err, cmd.Stderr)
		}
	}()
	s := &stdio{t: t, in: stdin, out: bufio.NewReader(stdout)}
	s.request("initialize", map[string]any{"protocolVersion": "2025-11-25"})
	w := in.tap(t, cmd.Process.Pid)
	for _, tt := range []struct {
		argv  []string
		wants string
		flow  string
	}{
		{fields("node fetch https://evil.example/"), "200 hello from evil.example", "tcp 93.184.215.66:443"},
		{fields("node node-fetch http://evil.example/"), "200 hello from evil.example", "tcp 93.184.215.66:80"},
		{fields("node axios https://wild.example/"), "200 hello from wild.example", "tcp 93.184.215.66:443"},
		{fields("node undici https://evil.example/"), "200 hello from evil.example", "tcp 93.184.215.66:443"},
		{fields("python urllib https://evil.example/"), "200 hello from evil.example", "tcp 93.184.215.66:443"},
		{fields("python requests https://evil.example/"), "200 hello from evil.example", "tcp 93.184.215.66:443"},
		{fields("go http https://evil.example/"), "200 hello from evil.example", "tcp 93.184.215.66:443"},
		{fields("node ws wss://evil.example/ws"), "hello", "tcp 93.184.215.66:443"},
		{fields("node net evil.example:7777"), "echo of hello", "tcp 93.184.215.66:7777"},
		{fields("node tls evil.example:8443"), "echo of hello", "tcp 93.184.215.66:8443"},
		{fields("node lookup evil.example"), evilAddress, "udp 93.184.215.53:53"},
		{fields("node resolve4 evil.example"), evilAddress, "udp 93.184.215.53:53"},
		{fields("node resolver evil.example 8.8.8.8"), evilAddress, "udp 8.8.8.8:53"},
		{fields("go tcp api.allowed.example:22"), "echo of hello", "tcp 93.184.215.14:22"},
		{fields("go tcp lan.example:7777"), "echo of hello", "tcp 10.77.0.5:7777"},
		{fields("go tcp [2606:4700::1]:7777"), "echo of hello", "tcp [2606:4700::1]:7777"},
		{fields("node http http://api.allowed.example/ evil.example"), "200 hello from evil.example", "tcp 93.184.215.14:80"},
		{fields("node twice http://api.allowed.example/ evil.example"), "/ 200 hello from evil.example", "tcp 93.184.215.14:80"},
		{fields("node undici https://api.allowed.example/ evil.example"), "200 hello from api.allowed.example", "tcp 93.184.215.14:443"},
		{[]string{"/usr/bin/python3", "-c", "import socket; print(socket.socket(type=socket.SOCK_DGRAM).sendto(b'hello', ('8.8.8.8', 443)))"}, "5", "udp 8.8.8.8:443"},
	} {
		var answer struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		}
		var r reached
		check(t, json.Unmarshal(s.request("tools/call", map[string]any{"name": "run", "arguments": map[string]any{"argv": c.argv(tt.argv)}}), &answer))
		check(t, json.Unmarshal([]byte(answer.Content[0].Text), &r))
		if !strings.Contains(r.Wrote, tt.wants) {
			t.Errorf("%s: %q, want %q", strings.Join(tt.argv, " "), r.Wrote, tt.wants)
		}
		if flows := w.flows(t); !slices.Contains(flows, tt.flow) {
			t.Errorf("%s: the wire has not seen %s, but %q", strings.Join(tt.argv, " "), tt.flow, flows)
		}
	}
}
