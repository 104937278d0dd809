package units

import "testing"

// A server waits for what its launcher says last, and only in that state.
func TestWait(t *testing.T) {
	wait := Wait{For: WaitProgram, Remedy: "pfar pins accept x"}
	for name, c := range map[string]struct {
		vars map[string]string
		want Wait
	}{
		"waits":           {map[string]string{NotifyState: StateWaiting, NotifyWait: wait.Notification()}, wait},
		"of no kind":      {map[string]string{NotifyState: StateWaiting}, Wait{}},
		"no JSON":         {map[string]string{NotifyState: StateWaiting, NotifyWait: `{"remedy":"x`}, Wait{}},
		"another state":   {map[string]string{NotifyState: StateStopping, NotifyWait: wait.Notification()}, Wait{}},
		"nothing of that": {map[string]string{"STATUS": "words"}, Wait{For: WaitCredentials}},
	} {
		u := Update{Wait: Wait{For: WaitCredentials}}
		if u.Take(c.vars); u.Wait != c.want {
			t.Errorf("%s: %+v, want %+v", name, u.Wait, c.want)
		}
	}
}
