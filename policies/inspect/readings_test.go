package inspect

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// TestReadings: Readings reads what a run of Base64 stands for wherever the run lies in the value, and once if the run
// lies in one string.
func TestReadings(t *testing.T) {
	const secret = "The merger with Acme closes on 14 March, in Vienna."
	run := base64.StdEncoding.EncodeToString([]byte(secret))
	half := len(run) / 2
	lines := run[:60] + "\n" + run[60:]
	for name, c := range map[string]struct {
		value any
		times int
	}{
		"alone":               {[]any{run}, 1},
		"amid words":          {[]any{"see " + run + " there"}, 1},
		"behind another":      {[]any{"see ", run, " there"}, 1},
		"between others":      {[]any{"", "see", " " + run + " ", "there", ""}, 1},
		"in two strings":      {[]any{"see " + run + ".", "and " + run}, 2},
		"over two strings":    {[]any{run[:half], run[half:]}, 1},
		"over three strings":  {[]any{"see " + run[:half], "", run[half : half+4], run[half+4:] + " there"}, 1},
		"behind a run":        {[]any{"x" + run[:3], run[3:]}, 1},
		"in lines":            {[]any{lines}, 1},
		"over lines":          {[]any{run[:60], "\n" + run[60:]}, 1},
		"a name":              {map[string]any{run: "x"}, 1},
		"a name and a string": {map[string]any{run: run}, 2},
	} {
		value, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		times := 0
		whole := Readings(value, func(text string) {
			if strings.Contains(text, secret) {
				times++
			}
		})
		if !whole || times != c.times {
			t.Errorf("%s: %d times, want %d, and the whole: %v", name, times, c.times, whole)
		}
	}
}
