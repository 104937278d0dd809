package generator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// Explain says to a server's owner what it can see, reach and hold, and by the policy what is known of its tools; nil:
// it is not at hand.
func Explain(p plan.Plan, policy *gate.Policy) string {
	var b strings.Builder
	switch {
	case p.Sandbox.Attached != "":
		fmt.Fprintf(&b, "%s runs on this machine without pfar, at %s.\npfar cannot confine it. What runs here is pfar's "+
			"adapter, which connects to it; all that\nfollows is about the adapter.\n", p.Name, quote(p.Sandbox.Attached))
	case p.Sandbox.Remote == "":
		fmt.Fprintf(&b, "%s runs %s.\n", p.Name, commandLine(p))
	default:
		fmt.Fprintf(&b, "%s is a remote server, at %s.\nIts owner gets what calls send to it, and pfar cannot confine it. "+
			"What runs here is pfar's\nadapter, which connects to it; all that follows is about the adapter.\n",
			p.Name, quote(p.Sandbox.Remote))
	}
	explainStart(&b, p)
	explainFiles(&b, p)
	explainNetwork(&b, p)
	explainClients(&b, p)
	explainGate(&b, p, policy)
	explainCredentials(&b, p)
	l := p.Sandbox.Limits
	cpu := "as much processor time as is free"
	if l.CPU > 0 {
		cpu = fmt.Sprintf("%d %% of one processor core", l.CPU)
	}
	fmt.Fprintf(&b, "\nIt may use %s of memory, %d processes and threads, and %s.\n", size(l.Memory), l.Tasks, cpu)
	fmt.Fprintf(&b, "\nEverything else is not there for it: your home directory and your keys, other servers and their "+
		"files, the machine's\nprocesses, sockets and devices, and pfar's own files. It holds no privilege, cannot gain "+
		"one, and ends with pfar.\n")
	return b.String()
}

func explainStart(b *strings.Builder, p plan.Plan) {
	switch {
	case !p.Enabled:
		fmt.Fprintf(b, "It is disabled: none of this happens.\n")
	case !p.Autostart && p.Gateway.IdleTimeout == 0:
		fmt.Fprintf(b, "It sleeps until the first call starts it, and then runs.\n")
	case !p.Autostart:
		fmt.Fprintf(b, "It sleeps until a call starts it, and again after %s without one.\n", declaration.Short(p.Gateway.IdleTimeout))
	case p.Gateway.IdleTimeout > 0:
		fmt.Fprintf(b, "It starts with pfar, sleeps after %s without a call, and the next one starts it again.\n",
			declaration.Short(p.Gateway.IdleTimeout))
	}
	if s := p.Gateway.Sessions; s.Own {
		fmt.Fprintf(b, "Each client session has its own process, at most %d at once. A process without a call for "+
			"%s\nstops, and its data is gone.\n", s.Max, declaration.Short(s.Idle))
	}
	if n := p.Gateway.Retries; n > 0 {
		fmt.Fprintf(b, "A call that failed is sent again up to %d times, if it is certain that it only reads.\n", n)
	}
	if p.Gateway.Version != "" {
		fmt.Fprintf(b, "It is expected to be version %s; another one is shown as drift.\n", quote(p.Gateway.Version))
	}
	if p.Gateway.Pins == string(declaration.Hold) {
		fmt.Fprintf(b, "Nothing that it offers is served until you accept it: pfar pins accept %s.\n", p.Name)
	}
}

func explainFiles(b *strings.Builder, p plan.Plan) {
	var reads, writes, doors []string
	shares, live := false, false
	for _, m := range p.Sandbox.Mounts {
		entry := quote(m.Dest)
		live = live || m.Live
		switch {
		case m.State:
			entry += ", its home, kept in " + quote(m.Source)
			writes = append(writes, entry)
		case m.Kind == sandbox.Bind:
			shares = true
			writes = append(writes, entry+", on the machine")
		case m.Kind == sandbox.Tmpfs && m.Why != "" && (m.Perms != 0 || m.Size > rootSize):
			writes = append(writes, fmt.Sprintf("%s, up to %s in memory, gone when it ends", entry, size(m.Size)))
		case m.Door != nil:
			doors = append(doors, quote(m.Source)+doorWords(*m.Door))
		case m.ReadOnly() && m.Source != "/proc/sys" && !sandbox.Below(m.Dest, "/etc"):
			reads = append(reads, entry+", "+m.Why)
		}
	}
	fmt.Fprintf(b, "\nOf the machine's files it can read:\n")
	bullets(b, append(reads, "certificates, time zone and the like in /etc, nothing of it private"))
	fmt.Fprintf(b, "It sees these over its own file systems: no lock, watch, socket or pipe in them leads to the "+
		"machine or to another\n"+
		"server. pfar status says where the machine cannot do that. A file that is replaced may stay as it was until the "+
		"server restarts.\n")
	if live {
		fmt.Fprintf(b, "In a directory of read_only it sees a replaced, new or removed file within about a second, unless "+
			"it holds that file open.\n")
	}
	if len(doors) > 0 {
		fmt.Fprintf(b, "\nIt speaks with the server at:\n")
		bullets(b, doors)
	}
	fmt.Fprintf(b, "\nIt can write to:\n")
	bullets(b, writes)
	if shares {
		fmt.Fprintf(b, "It shares the directories on the machine with their other users, with locks, watches, sockets "+
			"and pipes.\n")
	}
	explainUndo(b, p)
}

// doorWords say whose a socket or FIFO has to be.
func doorWords(d sandbox.Door) string {
	what := ", a socket"
	if d.FIFO {
		what = ", a FIFO"
	}
	var users []string
	for _, uid := range d.Owners {
		users = append(users, strconv.FormatUint(uint64(uid), 10))
	}
	return what + " of user " + strings.Join(users, " or ")
}

func explainNetwork(b *strings.Builder, p plan.Plan) {
	if len(p.Egress.Endpoints) == 0 {
		fmt.Fprintf(b, "\nIt reaches nothing on the network: no host is declared.\n")
		return
	}
	fmt.Fprintf(b, "\nOn the network it can reach, through its egress bridge:\n")
	var hosts []string
	for _, e := range p.Egress.Endpoints {
		what := e
		what.Port, what.AnyPort = 0, false
		entry := what.String()
		if e.Wildcard {
			entry += " (one name more, without " + e.Host + " itself)"
		}
		hosts = append(hosts, entry+", "+ports(e)+mayLeadTo(p, e))
	}
	bullets(b, hosts)
	if len(p.Egress.Blocked) > 0 {
		fmt.Fprintf(b, "Of these it cannot reach:\n")
		var blocked []string
		for _, e := range p.Egress.Blocked {
			blocked = append(blocked, e.String())
		}
		bullets(b, blocked)
	}
	fmt.Fprintf(b, "Every other connection is refused and noted.\n")
}

// explainClients says what of a client the server can get at, by asking it.
func explainClients(b *strings.Builder, p plan.Plan) {
	if len(p.Gateway.Capabilities) == 0 {
		fmt.Fprintf(b, "\nIt may ask nothing of the clients that call it.\n")
		return
	}
	meaning := map[string]string{
		"elicitation": "elicitation: it asks the client's user questions, in its own words, and gets the answers",
		"roots":       "roots: it learns which directories the client works in",
		"sampling":    "sampling: it runs the client's model, at the client's expense, on any text",
	}
	fmt.Fprintf(b, "\nOf the client whose call it serves, and of no other, it may ask:\n")
	var list []string
	for _, c := range p.Gateway.Capabilities {
		list = append(list, meaning[c])
	}
	bullets(b, list)
}

func explainCredentials(b *strings.Builder, p plan.Plan) {
	var held, brokered []string
	for _, c := range p.Credentials {
		switch entry := c.Name + ", from " + givenBy(c); c.Deliver {
		case broker.OnWire:
			brokered = append(brokered, entry+": "+wire(c))
		case broker.InFile:
			held = append(held, entry+", "+delivery(c))
		default:
			held = append(held, entry)
		}
	}
	if len(held) == 0 {
		fmt.Fprintf(b, "\nIt holds no credential.\n")
	} else {
		fmt.Fprintf(b, "\nIt holds these credentials, and can send them to whatever it reaches:\n")
		bullets(b, held)
	}
	if len(brokered) > 0 {
		fmt.Fprintf(b, "\nIt can use these but not read them: its egress bridge opens the connections to the named hosts, "+
			"and there replaces the\nplaceholder of the server by the value:\n")
		bullets(b, brokered)
	}
	for _, host := range slices.Sorted(maps.Keys(p.CA)) {
		fmt.Fprintf(b, "\nThe bridge opens the connections to %s, and verifies it by a file of authorities\n"+
			"in place of the system's. The file's SHA-256 is %s.\n", host, digest(p.CA[host]))
	}
	if len(p.TLSPins) > 0 {
		fmt.Fprintf(b, "\nThe bridge opens the connections to these hosts, and talks to them only if one of their "+
			"certificates has\none of these keys:\n")
		var pinned []string
		for _, host := range slices.Sorted(maps.Keys(p.TLSPins)) {
			for _, pin := range p.TLSPins[host] {
				pinned = append(pinned, host+": "+pin.String())
			}
		}
		bullets(b, pinned)
	}
	if len(p.Scopes) > 0 {
		fmt.Fprintf(b, "\nIts OAuth tokens are to have been granted these scopes; it does not run with tokens that are known to lack one:\n")
		bullets(b, p.Scopes)
	}
	var tools []string
	for _, name := range slices.Sorted(maps.Keys(p.Gateway.Tools)) {
		if t := p.Gateway.Tools[name]; len(t.Scopes) > 0 {
			tools = append(tools, name+": "+strings.Join(t.Scopes, ", "))
		}
	}
	if len(tools) > 0 {
		fmt.Fprintf(b, "\nThese tools are not called with OAuth tokens that are known to lack one of these scopes:\n")
		bullets(b, tools)
	}
}

func bullets(b *strings.Builder, list []string) {
	for _, s := range list {
		fmt.Fprintf(b, "  - %s\n", s)
	}
}

// explainGate says what the owner tells the gate of the server, and what the policy knows of it; nil: no policy is at
// hand.
func explainGate(b *strings.Builder, p plan.Plan, policy *gate.Policy) {
	d, _ := p.Declared()
	if service, certain := policy.Service(d); certain {
		fmt.Fprintf(b, "\nThe gate knows the facts of its tools: it belongs to the service %s.\n", service)
	} else if unknown := Unknown(p, policy); unknown != "" {
		fmt.Fprintf(b, "\n%s\n", unknown)
		return
	}
	list := gateWords(p)
	if len(list) == 0 {
		fmt.Fprintf(b, "\nYou declare no facts of its tools: the gate uses those of its policies, and else assumes the worst.\n")
		return
	}
	fmt.Fprintf(b, "\nYou declare these facts of its tools. For the rest the gate uses those of its policies, and else assumes the worst:\n")
	bullets(b, list)
}
