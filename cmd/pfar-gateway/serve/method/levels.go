package method

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
)

// Levels sets the levels of log messages.
type Levels struct {
	Calls *call.Calls
	Hub   *hub.Hub
	Noted func() // is called when what the next gateway has to know has changed
}

// levelTime is how long a client waits for servers to take its level; they are asked side by side.
const levelTime = 5 * time.Second

// set sets the level of log messages for this client. A server gets the most verbose level that any of its clients
// wants. Each client gets its own level.
func (l *Levels) set(v *call.Visit) (reply.Reply, error) {
	if v.Session == nil {
		return reply.Reply{}, onlyInSessions(mcp.MetaKeyLogLevel + " in _meta")
	}
	name, err := v.Text("level")
	if err != nil {
		return reply.Reply{}, err
	}
	level := hub.Severity(name)
	if level <= 0 {
		return reply.Reply{}, invalidParams("%.100q is not a level", name)
	}
	v.Session.Sub.SetLevel(level)
	l.Noted()
	v.Session.SetLevel(v.Ctx, name)
	ctx, cancel := context.WithTimeout(l.Calls.Life, levelTime)
	defer cancel()
	var told sync.WaitGroup
	for _, up := range v.Catalogue(l.Calls.Registry).Offering(v.Endpoint, "logging") {
		if !up.Server().Sessions.Own { // told above
			told.Go(func() { l.tell(ctx, up) })
		}
	}
	told.Wait()
	return reply.Empty, nil
}

// tell sets the level of a server that keeps one for all its clients.
func (l *Levels) tell(ctx context.Context, up *registry.Upstream) {
	level := l.Hub.Lowest(up.Server().Name)
	if level == 0 || up.Modern() || !up.Agreed().Has("logging") || !up.Louder(level) {
		return // nobody wants any, or it is told with each call, or has been
	}
	params := fmt.Appendf(nil, `{"level":%q}`, hub.Levels[level])
	if _, err := up.Call(ctx, protocol.Call{Method: string(mcp.MethodSetLogLevel), Params: params}); err != nil {
		l.Calls.Log.Warn("setting a server's log level, ignoring", "server", up.Server().Name, "error", err.Error())
	}
}

// Restore tells a server's new process which log messages its clients want.
func (l *Levels) Restore(up *registry.Upstream) {
	if !up.Server().Sessions.Own {
		l.tell(l.Calls.Life, up)
	}
}
