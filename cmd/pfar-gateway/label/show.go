package label

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// List is all sessions of declared clients, by client and handle, without their sources.
func (s *Sessions) List() ([]Session, error) {
	known := make(map[key]Session)
	var k key
	var reset int64
	var one Session
	err := s.db.Each("SELECT client, handle, reset, reset_by, frozen FROM sessions",
		[]any{&k.client, &k.handle, &reset, &one.ResetBy, &one.Frozen}, func() error {
			one.Reset = moment(reset)
			known[k] = one
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("reading the sessions: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := []Session{}
	for k, e := range s.sessions {
		if s.declared[k.client] {
			one := known[k]
			one.Client, one.Handle, one.Label = k.client, k.handle, unpack(e.label.Load())
			one.Created, one.Used = moment(e.created), moment(e.used.Load())
			one.Silent = int(e.silence(s.Now()) / time.Second)
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b Session) int {
		return cmp.Or(strings.Compare(a.Client, b.Client), strings.Compare(a.Handle, b.Handle))
	})
	return list, nil
}

func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// Show is one session, with what raised its label.
func (s *Sessions) Show(client, handle string) (Session, error) {
	list, err := s.List()
	if err != nil {
		return Session{}, err
	}
	i := slices.IndexFunc(list, func(one Session) bool { return one.Client == client && one.Handle == handle })
	if i < 0 {
		return Session{}, ErrUnknown
	}
	list[i].Sources = s.Sources(client, handle)
	return list[i], nil
}
