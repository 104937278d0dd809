package operator

import (
	"strings"
	"testing"
)

func TestIsID(t *testing.T) {
	good := NewID()
	for text, want := range map[string]bool{
		good: true, "k3bq7x-2mz4p-tw5ra-c6yhd-e7suf": true,
		"": false, strings.ToUpper(good): false, good + "a": false, good[1:]: false, good + "-aaaaa": false,
		strings.ReplaceAll(good, "-", "_"): false, good[:6] + "/" + good[7:]: false, "." + good[1:]: false,
		strings.Repeat("-", len(good)): false, good[:len(good)-1] + "\n": false, good[:len(good)-1] + "1": false,
		"k3bq7x2-mz4p-tw5ra-c6yhd-e7suf": false, "é3bq7-2mz4p-tw5ra-c6yhd-e7suf": false,
	} {
		if IsID(text) != want {
			t.Errorf("%q is an id: %t", text, !want)
		}
	}
}
