// Package attach is the conversation between pfard and the process of an instance unit: a server's launcher, its egress
// bridge, what refreshes or obtains a token set, what asks a model, what serves a one-time page or the console, or what
// holds the conversation of a chat.
//
// The process connects to pfard's socket (SOCK_SEQPACKET), says who it is, and keeps the connection as long as it
// lives. pfard believes nothing that it says of itself: the kernel says which process it is, and systemd which unit
// that process is the main one of. If pfard is started again, the process connects anew and goes on.
package attach

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/packet"
	"github.com/pfar/pfar/units/page"
	"github.com/pfar/pfar/units/processes"
)

// Message is one packet. Exactly one member is set, beside Later.
type Message struct {
	// From the instance's process.
	Hello   *Hello            `json:"hello,omitempty"`   // the first message
	Place   *Place            `json:"place,omitempty"`   // launcher: put this process into the server's scope
	Ended   bool              `json:"ended,omitempty"`   // launcher: what was placed has ended; for want of memory?
	Search  *Search           `json:"search,omitempty"`  // launcher: what may be logged of the attached file?
	Sockets bool              `json:"sockets,omitempty"` // launcher: the sockets of a network namespace that it made, attached
	Notify  map[string]string `json:"notify,omitempty"`  // what it has told its service manager, by variable (package units)
	Allow   *Allow            `json:"allow,omitempty"`   // all but launchers: it is about to connect
	Wired   bool              `json:"wired,omitempty"`   // bridge: it puts on the wire what came with the first Broker that it has not answered, of a Welcome or a message
	Unwired bool              `json:"unwired,omitempty"` // bridge: it could not take that, and puts on the wire what it did before
	Refused *egress.Refusal   `json:"refused,omitempty"` // bridge: what it has refused last
	Errand
	PageTalk

	// From pfard.
	Welcome *Welcome `json:"welcome,omitempty"` // the answer to Hello
	Placed  *Placed  `json:"placed,omitempty"`  // the answer to Place
	End     *End     `json:"end,omitempty"`     // the answer to Ended
	Found   *Found   `json:"found,omitempty"`   // the answer to Search: the attached file may be logged
	Allowed *Allowed `json:"allowed,omitempty"` // the answer to Allow
	Broker  bool     `json:"broker,omitempty"`  // to a bridge: the attached file has what it is to put on the wire from now on (package broker)
	Redact  bool     `json:"redact,omitempty"`  // to a bridge: the attached file has what to keep out of logs from now on (package redact)
	Refusal string   `json:"refusal,omitempty"` // to a launcher: what its bridge has refused last, in words
	Mistake *string  `json:"mistake,omitempty"` // to a launcher: why its server does not run as its file says, in words; "": it does
	News
	Error string `json:"error,omitempty"` // why pfard hangs up
	Later bool   `json:"later,omitempty"` // with Error: it may be otherwise when the process is started again
}

// News is the part of a Message by which pfard tells a launcher more than it has asked.
type News struct {
	Label *string `json:"label,omitempty"` // of its server's data from now on
	Try   bool    `json:"try,omitempty"`   // a call wants its server, which is offline: try it now
}

// Hello says who has connected: a launcher, if it is none of the others.
type Hello struct {
	Bridge  bool   `json:"bridge,omitempty"`  // the egress bridge
	Refresh bool   `json:"refresh,omitempty"` // what refreshes a token set
	Login   bool   `json:"login,omitempty"`   // what obtains a token set
	Model   bool   `json:"model,omitempty"`   // what asks a model for the gateway
	Page    bool   `json:"page,omitempty"`    // what serves a one-time page
	Console bool   `json:"console,omitempty"` // what serves the operator's pages
	Remote  bool   `json:"remote,omitempty"`  // with Console: to operators at other machines, who have passkeys
	Chat    bool   `json:"chat,omitempty"`    // what holds the conversation of a chat
	Digest  string `json:"digest"`            // of the plan that it was started with (plan.Digest); of the others, none
	Again   bool   `json:"again,omitempty"`   // it has been welcomed before, by an earlier pfard perhaps
}

// Welcome comes with descriptors: to a launcher its connection to the gateway; to a bridge the sockets from the
// server's network namespace that systemd could not bind; to a refresh the token set (oauth.Set, units.Sealed); to a
// login its task (oauth.Task), to a page its page.Task, likewise. A process that comes again gets none of these.
type Welcome struct {
	Held   string `json:"held,omitempty"`   // to all but launchers: why the firewall does not hold it, in words; "" if it does
	Redact bool   `json:"redact,omitempty"` // to a bridge: the next message is one of Message.Redact, and nothing is to be logged before
	Broker bool   `json:"broker,omitempty"` // to a bridge: the last of the files is as of Message.Broker
}

// Place names bwrap, before it has read its arguments and forked.
type Place struct {
	PID int `json:"pid"`
}

// Placed says in words how the process is held, or why it must not run.
type Placed struct {
	How   string `json:"how,omitempty"`
	Error string `json:"error,omitempty"`
	Later bool   `json:"later,omitempty"` // with Error: it may be otherwise when the process is started again
}

// End is how the server's scope ended.
type End struct {
	OOM bool `json:"oom,omitempty"` // the kernel killed something in it for memory
}

// Allow asks the firewall to let the bridge connect. Several may be under way.
type Allow struct {
	ID        uint64        `json:"id"`
	Name      string        `json:"name"`      // declared, or the upstream proxy's
	Port      uint16        `json:"port"`      // of TCP
	Addresses []netip.Addr  `json:"addresses"` // that Name has
	For       time.Duration `json:"for"`       // how long they are good, nanoseconds in JSON
}

// Allowed is the answer to the Allow of that ID. With Error "" the connections get through from now on.
type Allowed struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
}

// PageTalk is the part of a Message about a one-time page or a console.
type PageTalk struct {
	Listens *Listens    `json:"listens,omitempty"` // page: where it is
	Acted   *Acted      `json:"acted,omitempty"`   // page: what a person has done there; a value is the attached file
	Shown   *page.State `json:"shown,omitempty"`   // pfard: what the page shows from now on
	Invite  *Invite     `json:"invite,omitempty"`  // pfard to a console, which answers with Listens
	Entered string      `json:"entered,omitempty"` // a console to pfard: the nonce of an Invite that has let somebody in
	Report  bool        `json:"report,omitempty"`  // pfard to a console: the attached file is a control.Report
	Known   bool        `json:"known,omitempty"`   // pfard to a console: the attached file is a Known
	Order   *Order      `json:"order,omitempty"`   // a console to pfard: an order of a person
	Ordered *Ordered    `json:"ordered,omitempty"` // pfard to a console: the answer to Order
	Audit   *Question   `json:"audit,omitempty"`   // a console to pfard: it wants the newest files of the audit
	View    *View       `json:"view,omitempty"`    // a console to pfard: it wants a text that pfard has or makes
	Drop    *Question   `json:"drop,omitempty"`    // a console to pfard: it does not wait for this ViewVerify any more
	Records *Records    `json:"records,omitempty"` // pfard to a console: the answer to Audit or View
}

// Question tells a console's question from its other questions. The answer has the same number.
type Question struct {
	Number uint64 `json:"number"`
}

// What a console can have pfard show.
const (
	ViewLog     = "log"     // the last lines of the log of a server
	ViewExplain = "explain" // what a server can see and reach, in words
	ViewChecks  = "checks"  // what the checks of this machine find
	ViewVerify  = "verify"  // what pfar audit verify finds; pfard verifies the audit until it is dropped
	ViewUsage   = "usage"   // what a server costs now (Usage)
	ViewBridge  = "bridge"  // the connections of one of Usage.Bridges: the file is a socket of package monitor
	ViewLesson  = "lesson"  // the newest lesson of a server (chores.Learning), for the user who runs pfard
	ViewImport  = "import"  // an import of a program before it begins or, without one, the newest (chores.Importing)
)

// View asks for one text. pfard decides who may see it.
type View struct {
	Question
	What    string `json:"what"`              // one of those above
	Subject string `json:"subject,omitempty"` // its server, instance or program, if it has one
}

// Usage is what a server costs.
type Usage struct {
	At      time.Time       `json:"at"`
	Cost    *processes.Cost `json:"cost,omitempty"`    // nil: none of its processes runs
	Bridges []string        `json:"bridges,omitempty"` // the instances that are up (units.Instance), each with a bridge
	More    int             `json:"more,omitempty"`    // instances beyond MaxBridges
}

// MaxBridges is how many instances a Usage names.
const MaxBridges = 8

// Records describes the attached files: the newest ones of the audit, which everybody with a console may read, or the
// one of a View. If there is no file for a View, its text is empty.
type Records struct {
	Question
	Chains []string `json:"chains,omitempty"` // of each file of the audit, the oldest of a chain first
	More   bool     `json:"more,omitempty"`   // there are older files; of a View: its text is the end of a longer one
	Error  string   `json:"error,omitempty"`  // why there are no files, in words
}

// What a person orders at a console.
const (
	OrderSecrets = "enter" // open a one-time page for the secrets that Server lacks
	OrderStart   = "start"
	OrderStop    = "stop"
	OrderRestart = "restart"
	OrderAllow   = "allow"   // add Host to what Server may reach
	OrderAdd     = "add"     // open a one-time page that sets up Server, a service of the catalogue
	OrderClient  = "declare" // declare Client, which may use Servers
	OrderLearn   = "learn"   // find the hosts that Server needs, in learning mode (ViewLesson)
	OrderImport  = "import"  // import the servers of Program as the preview with Digest has shown them (ViewImport)
	OrderEnroll  = "enroll"  // add Key to the passkeys of the operator whom the invitation of Nonce names

	OrderChallenge = "challenge" // give a nonce, with which Operator signs another order
)

// Known is what a console shows beside what runs.
type Known struct {
	Offers      []Offer            `json:"offers,omitempty"`
	Clients     []Client           `json:"clients,omitempty"`
	Programs    []string           `json:"programs,omitempty"` // whose servers can be imported (chores.Programs)
	Connects    Connects           `json:"connects,omitzero"`
	Operators   []passkey.Operator `json:"operators,omitempty"`   // to the remote console alone
	Invitations []Invitation       `json:"invitations,omitempty"` // likewise
}

// Invitation lets a person add a passkey to an operator, once. The console gets its nonce with the person's link.
type Invitation struct {
	Digest   []byte       `json:"digest"` // SHA-256 of the nonce
	Operator string       `json:"operator"`
	Role     passkey.Role `json:"role"`
	Origin   string       `json:"origin"` // of the console (passkey.Origin)
	Until    time.Time    `json:"until"`
}

// Connects is the command by which a program on this machine reaches pfar. The zero value is none.
type Connects struct {
	Pfar string `json:"pfar"` // path of the program
	Run  string `json:"run"`  // directory of pfar's sockets
}

// Client is a client that is declared or built in, in words. It has no token and no digest of one.
type Client struct {
	Name     string `json:"name"`
	File     string `json:"file,omitempty"` // that declares it
	Identity string `json:"identity"`       // how a program shows that it is this client
	HasToken bool   `json:"has_token,omitempty"`
	Servers  string `json:"servers"`
	Tools    string `json:"tools,omitempty"`
	Profile  string `json:"profile"`
	Relax    string `json:"relax,omitempty"` // why its declaration allows more than the default
	Off      bool   `json:"off,omitempty"`   // it is disabled, or its file is broken
}

// Offer is a service of the catalogue. The one-time page of its set-up shows the files, hosts and secrets of the server
// before anything is installed or written.
type Offer struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Summary string   `json:"summary"`
	Runs    string   `json:"runs"`              // its package, program or URL
	Reaches []string `json:"reaches,omitempty"` // hosts
	Secrets []string `json:"secrets,omitempty"` // how a person gets each, in words
	Page    bool     `json:"page,omitempty"`    // a one-time page can set it up (OrderAdd)
}

// Order is what a person orders at a console.
type Order struct {
	Question
	Act    string `json:"act"` // one of those above
	Server string `json:"server"`
	Host   string `json:"host,omitempty"` // an entry of allowed_domains (egress.ParseEndpoint)

	Program string `json:"program,omitempty"` // one of Known.Programs
	Digest  string `json:"digest,omitempty"`  // chores.Importing.Digest

	Client  string `json:"client,omitempty"`
	Servers string `json:"servers,omitempty"` // names with spaces between them, or access.Every

	Nonce string       `json:"nonce,omitempty"` // of an Invitation
	Key   *passkey.Key `json:"key,omitempty"`

	Operator string         `json:"operator,omitempty"`
	Proof    *passkey.Proof `json:"proof,omitempty"` // of an order from another machine: an operator's signature
}

// Elsewhere reports whether an operator at another machine may give this order. The operator signs it, and has the role
// passkey.Change.
func (o Order) Elsewhere() bool {
	return slices.Contains([]string{OrderStart, OrderStop, OrderRestart, OrderAllow}, o.Act)
}

// Signed is what the passkey of an operator signs: the order in JSON, without its number and proof.
func (o Order) Signed(nonce string) (passkey.Act, error) {
	o.Question, o.Proof = Question{}, nil
	body, err := json.Marshal(o)
	return passkey.Act{Nonce: nonce, Method: passkey.Order, Target: passkey.Pfard, Body: body}, err
}

// Ordered tells the result of an order.
type Ordered struct {
	Question
	Link  string `json:"link,omitempty"`  // of the one-time page (page.Link); the console does not see the secrets
	Token string `json:"token,omitempty"` // of the client that was declared; pfar keeps only its digest
	Nonce string `json:"nonce,omitempty"` // of OrderChallenge; it is good for one order within passkey.NonceTime
	Error string `json:"error,omitempty"` // why the order was not carried out, in words
}

// Invite lets in whoever comes with a link, once.
type Invite struct {
	Nonce  string `json:"nonce"`            // of the link (page.Path)
	Orders bool   `json:"orders,omitempty"` // pfard takes orders from the person
}

// Listens says where a page is.
type Listens struct {
	Port  uint16 `json:"port,omitempty"`  // of 127.0.0.1
	Error string `json:"error,omitempty"` // why it is nowhere
}

// Acted is what a person has done on a page.
type Acted struct {
	Act page.Act `json:"act"`
	Key string   `json:"key,omitempty"` // page.Wanted.Key of the secret that the page asked for
}

// MaxTokens bounds an OAuth token set, and what an endpoint makes of it, on the way to a refresh and back, in bytes.
const MaxTokens = 128 << 10

// Conn is one connection, at either end.
type Conn struct{ packet.Of[Message] }

// Dial connects to pfard's socket.
func Dial(path string) (*Conn, error) { return of(packet.Dial(path)) }

// FromFile takes over a descriptor that is a connection, and closes the file.
func FromFile(f *os.File) (*Conn, error) { return of(packet.FromFile(f)) }

// Pair returns both ends of a connection: one for this process, and one to pass to another, as a file of that name.
func Pair(name string) (ours *Conn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	theirs = os.NewFile(uintptr(pair[1]), name)
	if ours, err = FromFile(os.NewFile(uintptr(pair[0]), name)); err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

func of(c *packet.Conn, err error) (*Conn, error) {
	if err != nil {
		return nil, err
	}
	return &Conn{packet.Of[Message]{Conn: c}}, nil
}

// CloseAll closes received files.
func CloseAll(files []*os.File) { packet.CloseAll(files) }

// Accepted wraps a connection that pfard accepted.
func Accepted(c *net.UnixConn) *Conn {
	accepted, _ := of(packet.New(c), nil)
	return accepted
}

// Answer sends the answer to an Allow: the connections get through, or err says why not. A process that has gone hears
// nothing.
func (c *Conn) Answer(id uint64, err error) {
	a := Allowed{ID: id}
	if err != nil {
		a.Error = err.Error()
	}
	_ = c.Send(Message{Allowed: &a})
}
