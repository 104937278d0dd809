package main

import (
	"fmt"
	"maps"
	"sync"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/handover"
)

// status is what the launcher tells of its server: the service manager, pfard, and whoever looks at the unit.
type status struct {
	pfard   *attachment
	history history // of crashes

	telling sync.Mutex
	shown   units.StatusLine // in a unit
}

// notify tells the service manager, and pfard where that is somebody else. In a unit the status line is what an
// administrator sees of the server: its state, the label of its data, and what it was last refused.
func (s *status) notify(vars map[string]string) {
	s.pfard.tell(vars)
	if !s.pfard.unit() {
		_ = notify(lines(vars))
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	s.show(vars)
	vars = maps.Clone(vars)
	vars["STATUS"] = s.shown.String()
	_ = notify(lines(vars))
}

// show takes what people are shown. s.telling is held.
func (s *status) show(vars map[string]string) {
	if v, ok := vars[units.NotifyState]; ok {
		s.shown.State = v
	}
	if v, ok := vars[units.NotifyVerification]; ok && units.IsInvalid(v) {
		s.shown.State = units.StateInvalid
	}
	if v, ok := vars[units.NotifyWait]; ok && units.IsForLogin(v) {
		s.shown.State = units.StateLogin
	}
	if v, ok := vars["STATUS"]; ok {
		s.shown.Detail = v
	}
}

// verified adds what is known of the server's secrets, and returns the status of a server that has them.
func verified(v *units.Verification, trial *handover.Trial, vars map[string]string, status string) string {
	if v == nil {
		v = new(units.Verification) // or what was said before would stand
	}
	vars[units.NotifyVerification] = v.Notification()
	switch v.Result {
	case units.Invalid:
		told := *v
		if trial != nil {
			told.Remedy, told.Where = trial.Remedy, trial.Where
		}
		return handover.Refused(told)
	case units.Unverified:
		return status + ", connected, not verified"
	}
	return status
}

// news is called with what pfard says of the server while it runs.
func (s *status) news(m attach.Message) {
	s.telling.Lock()
	switch {
	case m.Refusal != "":
		s.shown.Refusal = m.Refusal
	case m.Mistake != nil:
		s.shown.Mistake = *m.Mistake
	case m.Label != nil:
		s.shown.Label = *m.Label
	}
	line := s.shown.String()
	s.telling.Unlock()
	_ = notify([]string{set("STATUS", line)})
}

// state tells how the server is.
func (s *status) state(state, words string) {
	vars := map[string]string{
		units.NotifyState: state, units.NotifyCrashes: fmt.Sprint(s.history.InRow), "STATUS": words,
	}
	if state == units.StateOffline {
		vars[units.NotifyWait] = units.Wait{
			Until: s.history.Last.Add(s.history.delay()), NotMCP: s.history.NotMCP, Failed: s.history.Failed,
			AsksLater: s.history.After > 0, Words: s.history.Why,
		}.Notification()
	}
	s.notify(vars)
}

// waits tells for what the server waits.
func (s *status) waits(w units.Wait) {
	s.notify(map[string]string{
		units.NotifyState: units.StateWaiting, units.NotifyWait: w.Notification(), "STATUS": w.Status(), "READY": "1",
	})
}
