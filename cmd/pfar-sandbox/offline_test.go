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
		after  int64         // seconds that its service wants to be left alone
		since  time.Duration // of the last try, when the call comes
		want   time.Duration // from then until the next try
	}{
		"at once":              {true, 0, 10 * time.Second, 0},
		"after a second":       {true, 0, 400 * time.Millisecond, 600 * time.Millisecond},
		"one of its process":   {false, 0, 10 * time.Second, 20 * time.Second},
		"not before it wants":  {true, 100, 10 * time.Second, 90 * time.Second},
		"no sooner than usual": {true, 3, 10 * time.Second, 20 * time.Second},
		"not for ever":         {true, 1 << 62, 10 * time.Second, time.Hour - 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAttachment("pfard", "")
				h := history{InRow: 3, Recent: 3, Last: time.Now(), After: test.after, Remote: test.remote}
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
				if test.remote != w.Until.Equal(h.Last.Add(max(30*time.Second, test.since+test.want))) {
					t.Errorf("it says that the next try is at %v", w.Until)
				}
			})
		})
	}
}
