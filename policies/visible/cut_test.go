package visible

import "testing"

// TestCut: a text is cut at its limit, or before a character that does not fit whole. It is never more than the limit.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abc", 4, "abc"}, {"abc", 2, "ab"}, {"abc", 0, ""}, {"abc", -1, ""},
		{"aé", 2, "a"}, {"aé", 3, "aé"}, {"€", 2, ""}, {"a\U0001F600b", 4, "a"}, {"a\U0001F600b", 5, "a\U0001F600"},
		{"\x80\x80\x80", 2, ""}, {"a\xff\xff", 2, "a\xff"},
	} {
		if got := Cut(c.text, c.most); got != c.want {
			t.Errorf("%q, %d: %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
