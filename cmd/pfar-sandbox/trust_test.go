package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker/rootca"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

// clients is a server that asks, by programs of the host, two hosts of its own: the certificate of one is by the
// bridge's authority, that of the other by a stranger's. "bare" is without a variable that says what to trust.
const clients = `import os, ssl, socket, subprocess, sys, threading
def serve(port, pair):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    listener = socket.create_server(("127.0.0.1", port))
    def run():
        while True:
            c, _ = listener.accept()
            try:
                with context.wrap_socket(c, server_side=True) as s:
                    s.recv(4096)
                    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            except OSError: pass
    threading.Thread(target=run, daemon=True).start()
serve(8443, sys.argv[1]); serve(9443, sys.argv[2])
python = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
node = "fetch(process.argv[1]).then(r => r.text()).then(console.log, e => { console.error(e.cause); process.exit(1) })"
requests = "import sys, requests; print(requests.get(sys.argv[1]).text)"
commands = {"curl": ["curl", "-sS"], "python": ["/usr/bin/python3", "-c", python], "requests": ["/usr/bin/python3", "-c", requests], "node": [sys.argv[3], "-e", node]}
bare = {n: os.environ[n] for n in ("PATH", "HOME", "NO_PROXY", "no_proxy")}
for name, command in sorted(commands.items()):
    for how, env in (("", None), ("bare ", bare)):
        if env and name in ("node", "requests"): continue # some bring what they trust
        for who, port in (("bridge", 8443), ("stranger", 9443)):
            r = subprocess.run(command + ["https://localhost:%d/" % port], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
            if r.returncode and who == "bridge": sys.stderr.write(r.stderr.decode())
            print(how + name, who, r.stdout.decode().strip() if r.returncode == 0 else "refused", flush=True)
print("done", flush=True)
sys.stdin.read()
`

// Programs trust the bridge wherever they look for what to trust, and nobody else for it.
func TestProgramsTrustTheBridge(t *testing.T) {
	dir := open(t)
	authority := issue(t, "declared", filepath.Join(dir, "bridge.pem"))
	issue(t, "stranger", filepath.Join(dir, "stranger.pem"))
	program := filepath.Join(dir, "clients.py")
	if err := os.WriteFile(program, []byte(clients), 0o644); err != nil {
		t.Fatal(err)
	}
	node, err := exec.LookPath("node")
	if err == nil {
		node, err = filepath.EvalSymlinks(node)
	}
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%q", dir)
	if !sandbox.Below(node, "/usr") {
		shown += fmt.Sprintf(", %q", filepath.Dir(filepath.Dir(node)))
	}
	s, diags := declaration.Parse("declared.hcl", fmt.Appendf(nil, `command = "/usr/bin/python3"
args = [%q, %q, %q, %q]
allowed_domains = ["api.example.com"]
auth = { TOKEN = { secret = "vault:token", deliver = "broker" } }
sandbox { read_only = [%s] }`, program, filepath.Join(dir, "bridge.pem"), filepath.Join(dir, "stranger.pem"), node, shown), declaration.Options{})
	if s == nil {
		t.Fatal(diags)
	}
	p, diags := generator.Compile(*s, generator.Host{FS: os.DirFS("/").(fs.ReadLinkFS), Path: filepath.SplitList(os.Getenv("PATH"))})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	r := begin(t, p.Sandbox, given(t, units.Secrets{Values: map[string][]byte{"TOKEN": []byte("placeholder-of-a-token")}, Authority: authority}))
	r.hello()
	got, want := map[string]string{}, map[string]string{}
	for _, line := range r.lines(13) {
		if i := strings.LastIndexByte(line, ' '); i > 0 {
			got[line[:i]] = line[i+1:]
		}
	}
	for _, name := range []string{"curl", "python", "requests", "node", "bare curl", "bare python"} {
		want[name+" bridge"], want[name+" stranger"] = "ok", "refused"
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v\n%s", got, want, r.logged())
	}
}

// issue writes a certificate for localhost with its key, by the authority of a server, and returns that one's.
func issue(t *testing.T, server, path string) []byte {
	t.Helper()
	a, err := rootca.New(bytes.Repeat([]byte(server), 8), server)
	if err != nil {
		t.Fatal(err)
	}
	text, parent, signer, err := rootca.Certificate(a)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leaf, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pair := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	if err := os.WriteFile(path, pair, 0o644); err != nil {
		t.Fatal(err)
	}
	return text
}
