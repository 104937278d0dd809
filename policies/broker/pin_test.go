package broker

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParsePin(t *testing.T) {
	const good = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=" // of nothing
	for name, s := range map[string]string{
		"nothing": "", "the word alone": "sha256/", "no word": good[len(pinPrefix):], "as curl has it": strings.Replace(good, "/", "//", 1),
		"another digest": strings.Replace(good, "256", "384", 1), "upper case": strings.Replace(good, "sha", "SHA", 1),
		"unpadded": strings.TrimSuffix(good, "="), "for URLs": strings.NewReplacer("+", "-").Replace(good), "31 bytes": "sha256/" + strings.Repeat("A", 42) + "==",
		"33 bytes": "sha256/" + strings.Repeat("A", 44), "hexadecimal": "sha256/" + strings.Repeat("0f", 32), "a bit too many": strings.Replace(good, "U=", "V=", 1),
		"a line break": good[:20] + "\n" + good[20:], "a space": good + " ", "two": good + " " + good, "as a header has it": `pin-sha256="` + good[len(pinPrefix):] + `"`,
	} {
		if p, err := ParsePin(s); err == nil || p != (Pin{}) || len(s) > 10 && strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q is %v, %v", name, s, p, err)
		}
	}
	p, err := ParsePin(good)
	if err != nil || p.String() != good || p[0] != 0xe3 || p[31] != 0x55 {
		t.Errorf("%v, %v", p, err)
	}
	b, err := json.Marshal(map[string][]Pin{"x": {p}})
	if err != nil || string(b) != `{"x":["`+good+`"]}` {
		t.Errorf("%s, %v", b, err)
	}
	var back map[string][]Pin
	if err := json.Unmarshal(b, &back); err != nil || back["x"][0] != p {
		t.Errorf("%v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"x":["sha256/"]}`), &back); err == nil {
		t.Error("a pin that is none is read")
	}
}
