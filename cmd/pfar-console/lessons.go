package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/wants"
)

// lesson is the newest run of pfar learn for a server.
type lesson struct {
	Server  string
	Learn   learn
	Words   string // how it went
	Bad     bool   // it failed
	Done    bool   // there is a result
	Hosts   folded[suggestion]
	Refused folded[string]
	Left    int // that the result leaves out
}

// suggestion is a host that a server asked for.
type suggestion struct {
	Host, Words string
	Allow       *button // nil: it may reach the host, or nobody can allow it
	Allowed     bool
}

func lessonFor(ctx context.Context, s *site, server string) (chores.Learning, error) {
	v := attach.View{What: attach.ViewLesson, Subject: server}
	return viewOf[chores.Learning](ctx, s.archive, v, "the result of learning", "pfar learn "+server)
}

// byItself ends the words about a run that has not ended.
const byItself = ". The result appears here by itself; without script, load the page again."

func lessonPage(ctx context.Context, s *site, one *session, server string) (content, error) {
	now, err := serverNamed(s, server)
	if err == nil {
		err = mayCommand(s, one)
	}
	if err != nil {
		return content{}, err
	}
	l, err := lessonFor(ctx, s, server)
	if err != nil {
		return content{}, err
	}
	b := lesson{Server: visible.Reveal(server), Learn: learnOf(one, now), Bad: l.Failed != ""}
	b.Learn.Begins = b.Learn.Begins && !l.UnderWay()
	switch {
	case l.UnderWay():
		b.Words = "pfar has watched since " + moment(l.Began) + byItself
	case l.Began.IsZero():
		b.Words = "pfar has not looked for hosts of this server since pfard started."
	case b.Bad:
		b.Words = "It ended at " + moment(l.Ended) + ": " + visible.Reveal(l.Failed)
	default:
		b.Words = "pfar watched from " + moment(l.Began) + " to " + moment(l.Ended) + "."
	}
	if l.Found != nil {
		b.Done = true
		b.show(one, now, *l.Found)
	}
	return content{title: "Hosts of " + b.Server, template: "lesson", body: b, again: true}, nil
}

// show adds the hosts that were learned to the page.
func (b *lesson) show(one *session, now control.Server, found wants.Lesson) {
	b.Left = found.LeftOut + found.Lost
	for _, each := range found.Suggested {
		b.Hosts.add(func() suggestion {
			s := suggestion{
				Host: visible.Reveal(each.Entry), Words: visible.Reveal(each.Words()),
				Allowed: slices.Contains(now.Domains, each.Entry),
			}
			_, err := egress.ParseEndpoint(each.Entry)
			if err == nil && visible.ShellSafe(each.Entry) && !s.Allowed {
				s.Allow = &button{one.path(hostOffer{offerLearned, now.Name, each.Entry}.question()), "Allow " + s.Host}
			}
			return s
		})
	}
	for _, each := range found.Refused {
		b.Refused.add(func() string {
			target := cmp.Or(each.Target, "no target")
			return visible.Reveal(fmt.Sprintf("%s: %s (%s)", target, each.Reason, wants.Times(each.Times)))
		})
	}
}

// showLesson makes the page about the hosts that a server asked for.
func showLesson(s *site, server string) maker {
	return func(ctx context.Context, one *session) (content, error) { return lessonPage(ctx, s, one, server) }
}

// learning has pfard find out which hosts a server needs.
func learning(s *site, server string) taker {
	o := attach.Order{Act: attach.OrderLearn, Server: server}
	return ordering(s, "learn/"+server, o, " restarts in learning mode, for two minutes.")
}
