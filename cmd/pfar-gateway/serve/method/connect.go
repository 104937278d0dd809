package method

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-gateway/connect"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/jsonrpc"
)

// ownServer is the name under which pfar's own tool is served and judged. No declaration can have it.
const (
	ownServer   = access.Own
	connectName = "connect"
	connectTool = ownServer + registry.Separator + connectName
)

var (
	//go:embed connect.json
	connectDefinition []byte

	connectItem, _ = jsonrpc.Compact(nil, connectDefinition)
)

// facts of pfar's own tool: what comes out of it are pfar's words and the number of tools, what goes in is a name that
// pfard looks up, and it does nothing but put a page before a person. That person's yes is on the page; to ask for
// another one before it would be needless. A rule on the server "pfar" says otherwise.
const facts = `{"server":"pfar","words":[{"confidentiality":"public","integrity":"clean",` +
	`"audience":"secret","effect":"none","from":"pfar"}]}`

// Connecting is pfar's own tool, by which a model has a person connect a service.
type Connecting struct {
	Calls  *call.Calls
	Wishes *connect.Wishes // nil: there is no such tool
	Lost   rate.Sometimes  // of the log's entries about answers that cannot be used
}

// offered reports whether a client has the tool. A person has pfar add.
func (c *Connecting) offered(v *call.Visit) bool {
	return v.Endpoint == "" && v.Member != nil && v.Member.Rights.Tool(ownServer, connectName) &&
		!v.Identity().Person &&
		c.Wishes.Offered()
}

// called reports whether a request is a call of it.
func (c *Connecting) called(v *call.Visit) bool {
	name, err := jsonrpc.String(v.Parameters.Get("name"))
	return err == nil && name == connectTool && c.offered(v)
}

// listed puts the tool at the beginning of a list of tools.
func (c *Connecting) listed(v *call.Visit, re reply.Reply) reply.Reply {
	const head = `{"tools":[`
	if v.Parameters.Index("cursor") >= 0 || !c.offered(v) || !bytes.HasPrefix(re.Result, []byte(head)) {
		return re
	}
	rest := re.Result[len(head):]
	item := connectItem
	if rest[0] != ']' {
		item = slices.Concat(item, []byte{','})
	}
	re.Result = slices.Concat([]byte(head), item, rest)
	re.Closed = false // the byte behind is the list's, not ours
	return re
}

// call answers a call of it.
func (c *Connecting) call(v *call.Visit) (reply.Reply, error) {
	service, err := wished(v)
	if err != nil {
		c.Calls.Unfit(v, ownServer, connectName, err)
		return reply.Reply{}, err
	}
	it := enforce.Item{
		Server: ownServer, Declared: []byte(facts), Kind: gate.Tool, Name: connectName, Pin: ownServer, Fits: true,
		FreeText: func([]byte) bool { return false }, // the name is an identifier
	}
	return c.Calls.Own(v, it, func(o *call.Call) (reply.Reply, error) {
		if !v.Member.Rights.Server(service) {
			const text = "This client may not use a server called %q, so pfar does not connect it for this client. " +
				"The owner of this computer can allow it: pfar client set NAME --servers NAMES."
			return failed(string(control.CodeDenied), text, service), nil
		}
		answer, err := c.Wishes.Ask(o.Ctx, v.Bound.Client, service)
		if err != nil {
			return c.refused(service, err), nil
		}
		return c.tell(o, service, answer)
	})
}

// wished is the service that a call names. No message repeats what is none: it may be a secret.
func wished(v *call.Visit) (string, error) {
	given, err := arguments(v, "service")
	if err != nil {
		return "", invalidParams(`the arguments of %s are {"service": NAME} and nothing else`, connectTool)
	}
	service, err := jsonrpc.String(given.Get("service"))
	if err != nil || !units.IsServer(service) {
		return "", invalidParams(
			`the argument "service" of %s is the name of a service: 1 to 23 of a to z, 0 to 9 and -. `+
				"It takes no secret: a person enters that on the page",
			connectTool,
		)
	}
	return service, nil
}

// tell says how a set-up stands. A server's words are not in it: why it has failed is for the person.
func (c *Connecting) tell(o *call.Call, service string, a connect.Answer) (reply.Reply, error) {
	switch a.State {
	case control.FlowComplete:
		return saying(
			"%s is connected as the server %s, with %d tools. List the tools again.",
			service,
			a.Server,
			a.Tools,
		), nil
	case control.FlowFailed:
		return failed(
			string(a.Reason),
			"%s is not connected: %s. pfar's page tells the person more, and so does: pfar audit --kind set-up. Ask the "+
				"person before you try again.",
			service,
			reasonWords(a.Reason),
		), nil
	case control.AwaitingCredential, control.CredentialRefused:
	default:
		return saying("pfar is connecting %s. Wait, then call this tool again to learn how it went.", service), nil
	}
	const wait = "A person has been shown pfar's page for %s. Wait until they say that they are done, " +
		"then call this tool again."
	if a.Shown {
		return saying(wait, service), nil
	}
	link := call.Link{
		ID:  a.ID,
		URL: a.Page,
		Message: "pfar can connect " + service +
			". Its page on this computer says what the server may do, and takes the secret.",
	}
	switch re, how, err := o.Open(link); {
	case err != nil:
		return reply.Reply{}, err
	case re != nil:
		return *re, nil
	case how == call.Accepted:
		c.Wishes.Show(o.Bound.Client)
		return saying(wait, service), nil
	case how == call.Declined:
		return failed(
			string(control.FlowCancelled),
			"The person does not want to open pfar's page for %s. Do not ask again on your own.",
			service,
		), nil
	}
	return saying(
		"To connect %s, a person opens this page in a browser on the computer where pfar runs:\n\n%s\n\nShow them the "+
			"link as it is. Do not open it yourself, and do not ask for a secret: it is entered on that page and nowhere "+
			"else.%s "+
			"Call this tool again to learn how it went.",
		service,
		a.Page,
		forward(a.Page),
	), nil
}

// forward says how a browser on another computer gets to a page.
func forward(page string) string {
	u, err := url.Parse(page)
	if err != nil || u.Port() == "" {
		return ""
	}
	return fmt.Sprintf(
		" If the browser is on another computer, first run this there: ssh -L %s:127.0.0.1:%s HOST.",
		u.Port(),
		u.Port(),
	)
}

// refused says that no set-up was begun, in pfar's own words: an error of the connection to pfard is for the owner.
func (c *Connecting) refused(service string, err error) reply.Reply {
	refused, answered := errors.AsType[*control.Refused](err)
	switch {
	case errors.Is(err, connect.ErrOften):
		return failed(string(control.CodeBusy), "pfar does not begin to connect %s now: %v.", service, err)
	case errors.Is(err, control.ErrNotRunning):
		return failed(notRunning, "pfar cannot connect %s now: pfard does not answer. Try again later.", service)
	case answered && refused.Code != "":
		return failed(string(refused.Code), "pfar does not connect %s: %v.", service, err)
	}
	c.Lost.Do(func() { c.Calls.Log.Warn("cannot begin a set-up", "service", service, "error", err.Error()) })
	return failed(notRunning, "pfar cannot connect %s now. Its owner finds the reason in the log of pfar-gateway. "+
		"Try again later.", service)
}

// notRunning is the reason of what pfard is needed for, where nobody answers.
const notRunning = "not-running"

// reasonWords say for a model why a set-up has failed. They are pfar's own: the server's and the service's may be a
// stranger's.
func reasonWords(why control.FlowReason) string {
	switch why {
	case control.FlowCancelled:
		return "a person has cancelled it"
	case control.FlowSuperseded:
		return "another set-up was begun in its place"
	case control.FlowPageLost:
		return "its page has closed"
	case control.FlowUnanswered:
		return "no person has answered in time"
	case control.FlowNotInstalled:
		return "its package could not be installed"
	case control.FlowNotWritten:
		return "its declaration could not be written"
	case control.FlowNotStarted:
		return "its server does not start"
	case control.FlowNoTools:
		return "its server has no tools"
	case control.FlowNotVerified:
		return "its server did not answer the call that was to test it"
	case control.FlowRefused:
		return "the service refuses the secret"
	}
	return "pfar could not go on"
}

// saying is a result of pfar's own tool.
func saying(format string, args ...any) reply.Reply {
	text := jsonrpc.Quote(fmt.Sprintf(format, args...))
	return reply.Reply{Result: fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`, text)}
}

// failed is one that says what is not done. The reason is one word of control.FlowReason or control.Code, for programs;
// "": there is none.
func failed(reason, format string, args ...any) reply.Reply {
	text, meta := jsonrpc.Quote(fmt.Sprintf(format, args...)), ""
	if reason != "" {
		meta = fmt.Sprintf(`,"_meta":{"pfar/reason":%s}`, jsonrpc.Quote(reason))
	}
	return reply.Reply{
		ToolError: true,
		Result:    fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}],"isError":true%s}`, text, meta),
	}
}
