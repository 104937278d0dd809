package declaration

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/egress"
)

const maxSocketPath = 107 // unix(7)

// launch reads how pfar starts a server, or reaches one that runs.
type launch struct {
	*reader
	server    *Server
	remote    *egress.Endpoint // host of url
	encrypted bool             // url begins with https://
}

// keys stand in server or at the top of the file.
func (d *launch) keys() []block.Key {
	transports := []string{string(Stdio), string(UDS), string(Pipe), string(SSE), string(StreamHTTP)}
	return []block.Key{
		key("transport", `"stdio"`, `"stdio"`, word(d.reader, &d.server.Transport, transports, wordsOfTransports)),
		key("url", `"https://mcp.example.com/mcp"`, "", d.url),
		key("ca", `"/etc/pfar/company-ca.pem"`, "", d.ca),
		key("insecure", `"a test server in the lab"`, "", d.insecure),
		key("path", `"/run/notion/mcp.sock"`, "", d.path),
		key("owner", `"notion"`, "", d.owner),
		key("package", `"npm:@notionhq/notion-mcp-server@1.9.0"`, "", d.pkg),
		key("command", `"node"`, "", d.command),
		key("args", `["${servers}/notion/index.js"]`, `[]`, d.args),
		key("version", `"1.2.3"`, "", d.version),
	}
}

func (d *launch) command(f *block.Field) {
	s, ok := d.Line(f)
	if !ok {
		return
	}
	if s != strings.TrimSpace(s) || strings.HasPrefix(s, "-") {
		d.Problem(f.Val.At, "Invalid command", "command is a program's name or path, and %s is neither. Write %s.", block.Quote(s), f.Example)
		return
	}
	if words := strings.Fields(s); len(words) > 1 && !strings.Contains(words[0], "/") {
		rest := make([]string, 0, len(words))
		for _, w := range words[1:] {
			rest = append(rest, block.Quote(w))
		}
		d.Problem(f.Val.At, "Invalid command", "command is the program alone, no shell reads it. Write command = %s and "+
			"args = [%s].", block.Quote(words[0]), strings.Join(rest, ", "))
		return
	}
	d.server.Command = s
}

func (d *launch) pkg(f *block.Field) {
	s, ok := d.Line(f)
	if !ok {
		return
	}
	p, err := source.ParseExact(s)
	if err != nil {
		d.Problem(f.Val.At, "Not a package", "package is an exact version of a package: %v.", err)
		return
	}
	d.server.Package = p.String()
}

// checkProgram judges the command beside a package.
func (d *launch) checkProgram() {
	f, ok := d.Given["command"]
	if !ok || d.server.Package == "" || d.server.Command == "" || source.ValidBin(d.server.Command) {
		return
	}
	d.Problem(f.Val.At, "Keys that exclude each other", "Beside package, command is the name of one of its programs, and "+
		"%s is not a name. Remove command, or remove package.", block.Quote(d.server.Command))
}

func (d *launch) path(f *block.Field) {
	s, ok := d.Line(f)
	if !ok {
		return
	}
	switch {
	case strings.HasPrefix(s, `\\`):
		d.Problem(f.Val.At, "Invalid path", `%s is a pipe of Windows. On Linux it is a pair of FIFOs, `+
			`PATH.in and PATH.out: write path = "/run/notion/pipe" for both.`, block.Quote(s))
	case !d.absolute(f.Val):
	case len(s) > maxSocketPath:
		d.Problem(f.Val.At, "Too long", "The path of a socket has room for %d bytes, and this one has %d. Write a "+
			"shorter one.", maxSocketPath, len(s))
	case NotASocket(s):
		d.Problem(f.Val.At, "Refused path", "%s belongs to the machine, and no MCP server listens there. Write the path of "+
			"the server's own socket, such as %s.", block.Quote(s), f.Example)
	default:
		d.server.Path = s
	}
}

// ownerPattern is of users' names, and of their numbers.
var ownerPattern = regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,31}|0|[1-9][0-9]{0,8})$`)

func (d *launch) owner(f *block.Field) {
	s, ok := d.Line(f)
	switch {
	case !ok:
	case !ownerPattern.MatchString(s):
		d.Problem(f.Val.At, "Not a user", "owner is the name of a user or its number, and %s is neither. Write %s.",
			block.Quote(s), f.Example)
	default:
		d.server.Owner = s
	}
}

// NotASocket reports whether services of the host's own listen at a path: no MCP server does.
func NotASocket(s string) bool {
	for _, p := range []string{"/proc", "/sys", "/dev", "/etc", "/boot", "/var/lib/pfar", "/run/pfar", "/run/systemd",
		"/run/dbus", "/run/docker.sock", "/run/containerd", "/run/podman"} {
		if below(strings.Replace(s, "/var/run/", "/run/", 1), p) {
			return true
		}
	}
	return s == "/" || s == "/run" || s == "/var" || strings.HasPrefix(s, "/run/user/") && path.Base(s) == "bus"
}

// check judges which of the keys may stand together, and adds the host of a remote server to what is allowed.
func (d *launch) check(to *domains) {
	d.needs()
	t := strconv.Quote(string(d.server.Transport))
	web := d.server.Transport.web()
	socket := d.server.Transport == UDS || d.server.Transport == Pipe
	d.excludes("url", !web && d.server.Transport != UDS, "url is the address of a remote server, and the transport is "+t+
		`. Write transport = "stream-http" (or "sse"), or remove url.`)
	d.excludes("insecure", !d.elsewhere(), "insecure is for the url of a remote server, and the transport is "+t+
		". Remove insecure.")
	d.excludes("ca", !d.elsewhere(), "ca is for the url of a remote server, and the transport is "+t+". Remove ca.")
	d.excludes("path", !socket, "path is the socket of a server, and the "+
		"transport is "+t+`. Write transport = "uds" (or "pipe"), or remove path.`)
	d.excludes("owner", !d.attaches(), "owner is for a server that already runs at path, and pfar starts this one. "+
		"Remove owner.")
	d.checkProgram()
	d.checkInsecure()
	d.checkCA()
	d.checkPort()
	if d.starts() || d.server.Transport == Stdio {
		return
	}
	for _, k := range []string{"args", "env", sandboxSection} {
		d.excludes(k, true, k+" is for a program that pfar starts, and this server has no command. Remove "+k+".")
	}
	if d.remote != nil && web {
		to.allow(*d.remote)
	}
	d.excludes("allowed_domains", d.attaches(), "allowed_domains holds a program that pfar starts, and this server runs "+
		"without pfar: nothing holds it. Remove allowed_domains, or write the server's command.")
}

// elsewhere reports whether the server runs on another machine, or on this one without pfar, and has a URL.
func (d *launch) elsewhere() bool { return d.server.Transport.web() && !d.starts() }

// attaches reports whether the server runs on this host without pfar.
func (d *launch) attaches() bool {
	return (d.server.Transport == UDS || d.server.Transport == Pipe) && !d.starts()
}

// starts reports whether the file says what pfar is to start.
func (d *launch) starts() bool { return d.Given["command"] != nil || d.Given["package"] != nil }

// needs reports the one key that each transport cannot do without.
func (d *launch) needs() {
	need := map[Transport]string{Stdio: "command", UDS: "path", Pipe: "path", SSE: "url", StreamHTTP: "url"}[d.server.Transport]
	if need == "command" && (d.starts() || d.meant["package"]) {
		return
	}
	if _, ok := d.Given[need]; ok || d.meant[need] || d.meant[serverSection] && need == "command" {
		return
	}
	at := d.Start()
	for _, k := range []string{serverSection, "transport"} {
		if f, ok := d.Given[k]; ok {
			at = f.At
			if f.Val.Kind == block.Broken {
				return
			}
		}
	}
	if f, ok := d.Given["transport"]; ok && string(d.server.Transport) != f.Val.Text {
		return // what it was meant to be is not known
	}
	if f, ok := d.Given[serverSection]; ok && f.Val.Kind != block.Table {
		return
	}
	if need == "command" && (d.Given["url"] != nil || d.Given["path"] != nil) {
		return // said of those
	}
	d.Problem(at, "Missing key", "A server with the transport %q needs %s. Write %s.", d.server.Transport, need, d.example(need))
}

func (d *launch) excludes(key string, when bool, detail string) {
	f, ok := d.Given[key]
	if !ok || !when {
		return
	}
	if t, ok := d.Given["transport"]; ok && t.Val.Text != string(d.server.Transport) {
		return
	}
	d.Problem(f.At, "Keys that exclude each other", "%s", detail)
}

// versionPattern is of exact versions.
var versionPattern = regexp.MustCompile(`^v?[0-9][0-9A-Za-z.+_-]{0,63}$`)

func (d *launch) version(f *block.Field) {
	s, ok := d.Line(f)
	if !ok {
		return
	}
	if !versionPattern.MatchString(s) {
		d.Problem(f.Val.At, "Not a version",
			`version names one exact version of the server, and %s is not a version. Write %s, or leave the key out.`,
			block.Quote(s), f.Example)
		return
	}
	d.server.Version = s
}
