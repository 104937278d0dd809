package declaration

import (
	"slices"
	"time"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
)

const (
	defaultMemory  = 256 << 20
	defaultTasks   = 256 // node has 11 threads and twice that under npx; a browser server needs about 200
	defaultTimeout = 60 * time.Second
	maxRetries     = 5
	defaultUndo    = 1 << 30
	defaultKept    = 7 * 24 * time.Hour
)

// newServer returns the defaults.
func newServer(filename, name string) *Server {
	return &Server{
		Name: name, File: filename, Label: Sensitive, Allowed: []egress.Endpoint{}, Transport: Stdio,
		Enabled: true, Autostart: true, Calls: Calls{Timeout: defaultTimeout}, Pins: TrustFirst,
		Sandbox: Sandbox{
			Memory: defaultMemory, Tasks: defaultTasks, ReadOnlyFS: true, AllowTmp: true,
			Undo: Undo{On: true, Size: defaultUndo, Time: defaultKept},
		},
		Tools: map[string]Tool{},
	}
}

// serverFile reads the declaration of a server. Each part reads some keys into the same Server.
type serverFile struct {
	*reader
	server   *Server
	identity identity
	launch   *launch
	domains  *domains
	private  *private
	box      *box
	sessions sessions
	tools    *tools
	auth     *variables
	delivery *deliveries
	pins     *tlsPins
}

func newServerFile(f *block.File, s *Server) *serverFile {
	d := &serverFile{reader: newReader(f, otherWords), server: s}
	s.places = d.Places
	d.identity = identity{d.reader, s}
	d.launch = &launch{reader: d.reader, server: s}
	d.domains = &domains{reader: d.reader, server: s}
	d.private = &private{domains: d.domains}
	d.box = &box{reader: d.reader, sandbox: &s.Sandbox}
	d.sessions = sessions{d.launch, &s.Sessions}
	d.tools = &tools{reader: d.reader, all: s.Tools, alike: map[string]alias{}, renamed: map[string]string{}}
	d.auth = &variables{reader: d.reader, server: s}
	d.delivery = &deliveries{variables: d.auth, domains: d.domains, launch: d.launch}
	d.pins = &tlsPins{deliveries: d.delivery}
	d.schema = []block.Section{
		{Keys: d.fileKeys(), Top: true}, {Name: serverSection, Keys: d.launch.keys(), Top: true},
		{Name: sandboxSection, Keys: d.box.keys()}, {Name: trustSection, Keys: d.trustKeys(&s.Trust)},
		{Name: toolSection, Keys: d.tools.keys(), Many: true}, {Name: authSection, Keys: d.auth.keys()},
		{Name: credentialSection, Keys: d.delivery.keys(), Many: true, Where: "in a " + credentialSection},
	}
	return d
}

// read reads the keys, and then checks those that depend on each other.
func (d *serverFile) read(root *block.Node) {
	d.Section(d.called(""), root)
	d.identity.check()
	d.launch.check(d.domains)
	d.domains.checkBlocked()
	d.private.check()
	d.launch.checkPinned()
	d.launch.checkShell()
	d.delivery.check()
	d.pins.check()
	d.auth.check()
	d.auth.checkScopes()
	d.box.check()
	d.sessions.check()
}

// fileKeys are the keys at the top of a file. S3's registry writes those of server there.
func (d *serverFile) fileKeys() []block.Key {
	s, i := d.server, d.identity
	return slices.Concat([]block.Key{
		key("name", `"notion"`, "", i.name),
		key("description", `"Notion workspace"`, "", d.description(&s.Description)),
		key("label", `"sensitive"`, `"sensitive"`, word(d.reader, &s.Label, labels(), wordsOfLabels)),
		key("service", `"github"`, "", i.service),
		key("allowed_domains", `["api.notion.com"]`, `[]`, d.domains.allowed),
		key("blocked_domains", `["ads.example.com"]`, `[]`, d.domains.blocked),
		key("allow_private", "", `{}`, d.private.allow),
		key("tls_pins", "", `{}`, d.pins.read),
		key("enabled", `true`, `true`, d.SetTruth(&s.Enabled)),
		key("autostart", `true`, `true`, d.SetTruth(&s.Autostart)),
		key("timeout", `"60s"`, `"60s"`, d.setDuration(&s.Timeout, time.Second, time.Hour, false)),
		key("retries", `2`, `0`, d.setInteger(&s.Retries, 0, maxRetries)),
		key("idle_timeout", `"15m"`, `"0s"`, d.setDuration(&s.IdleTimeout, time.Second, 7*24*time.Hour, true)),
		key("client_capabilities", `["elicitation"]`, `[]`, d.capabilities(&s.Capabilities)),
		key("sessions", `"own"`, `"shared"`, d.sessions.own),
		key("sessions_max", `16`, `16`, d.setInteger(&s.Sessions.Max, 1, maxSessions)),
		key("session_idle", `"15m"`, `"15m"`, d.setDuration(&s.Sessions.Idle, time.Second, maxSessionIdle, false)),
		key("pins", `"hold"`, `"trust-first"`, word(d.reader, &s.Pins, []string{string(TrustFirst), string(Hold)}, wordsOfPins)),
		key("token_env", `"NOTION_TOKEN"`, "", d.auth.tokenEnv),
		key("env", "", `{}`, d.auth.env),
		key(authSection, "", `{}`, d.auth.read),
		key(serverSection, "", "", d.section(serverSection)),
		key(sandboxSection, "", "", d.section(sandboxSection)),
		key(trustSection, "", "", d.section(trustSection)),
		key(toolSection, "", "", d.tools.read),
	}, d.launch.keys())
}

func (d *reader) trustKeys(t *gate.Trust) []block.Key {
	return []block.Key{
		key("public_source", `false`, "", d.flag(&t.PublicSource)),
		key("secret_data", `true`, "", d.flag(&t.SecretData)),
		key("public_sink", `false`, "", d.flag(&t.PublicSink)),
		key("dangerous_writes", `true`, "", d.flag(&t.DangerousWrites)),
	}
}
