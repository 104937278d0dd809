package main

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// TestWantedWhileOffline: a call has a server tried that is offline, but not within a second of the last try. What
// crashes of itself is not started for it.
func TestWantedWhileOffline(t *testing.T) {
	for name, test := range map[string]struct {
		remote bool
		since  time.Duration // of the last try, when the call comes
		want   time.Duration // from then until the next try
	}{
		"at once":            {true, 10 * time.Second, 0},
		"after a second":     {true, 400 * time.Millisecond, 600 * time.Millisecond},
		"one of its process": {false, 10 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAttachment("pfard", "")
				h := history{InRow: 3, Recent: 3, Last: time.Now(), Remote: test.remote}
				l := &launcher{status: status{pfard: a, history: h}}
				time.AfterFunc(test.since, func() {
					a.take(attach.Message{News: attach.News{Try: true}})
					a.take(attach.Message{News: attach.News{Try: true}})
				})
				if err := l.backOff(context.Background()); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(h.Last) - test.since; got != test.want {
					t.Errorf("tried after %v, want %v", got, test.want)
				}
				var w units.Wait
				_ = json.Unmarshal([]byte(a.told[units.NotifyWait]), &w)
				if test.remote != w.Until.Equal(h.Last.Add(30*time.Second)) {
					t.Errorf("it says that the next try is at %v", w.Until)
				}
			})
		})
	}
}
