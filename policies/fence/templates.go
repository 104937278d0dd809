package fence

import (
	"slices"
	"strings"
)

// Beginnings of the tags by which chat templates and agents tell roles, turns, thoughts and tools, in small letters.
var tags = [...]string{
	"start_of_turn", "end_of_turn", "start_of_image", "bos", "eos", "bos_token", "eos_token", "sop", "eop", // Gemma, Cohere, GLM
	"beginning_of_sentence", "end_of_sentence", // MiniMax
	"tool_call", "tool_calls", "tool_response", "tool_responses", "tool_result", "tool_results", "tool_outputs", // Hermes, Qwen, DeepSeek
	"function_calls", "function_results", "function_result", "invoke", "system-reminder", // agents
	"think", "im_start", "im_end",
}

// Tags with the names of roles, which other texts have, too.
var roles = [...]string{"system", "assistant", "human", "system_prompt", "system-prompt", "system_message",
	"system_instruction", "system_instructions"}

// Tags that have a number behind them: Gemma's, Baichuan's, Nemotron's.
var numbered = [...]string{"unused", "reserved_", "extra_id_", "special_"}

// Beginnings of all tags of some agents and templates, with the colon behind them.
var spaces = [...]string{"antml:", "minimax:", "seed:"}

// Words in brackets of Mistral's, Llama's and GLM's templates.
var brackets = [...]string{
	"INST", "/INST", "SYSTEM_PROMPT", "/SYSTEM_PROMPT", "AVAILABLE_TOOLS", "/AVAILABLE_TOOLS", "TOOL_CALLS", "/TOOL_CALLS", "TOOL_RESULTS",
	"/TOOL_RESULTS", "TOOL_CONTENT", "gMASK", "THINK", "/THINK",
}

// Names of turns that EXAONE has between bars in square brackets, and whether they are names of roles. In programs
// others stand there.
var turns = map[string]bool{"|system|": true, "|user|": true, "|assistant|": true, "|endofturn|": false}

// Names that are known between bars, and so may have blanks around them; a program could have others there.
var barred = [...]string{
	"im_start", "im_end", "im_sep", "endoftext", "begin_of_text", "end_of_text", "start_header_id", "end_header_id",
	"eot_id", "eom_id", "python_tag",
	"begin_of_sentence", "end_of_sentence", "start_of_role", "end_of_role", "system", "user", "assistant", "channel",
	"constrain", "fim_prefix", "fim_suffix", "fim_middle",
}

const maxTag = 48 // characters

// mayBeTag reports whether what follows a "<" needs a closer look: most of HTML does not.
func mayBeTag(s string) bool {
	s = strings.TrimPrefix(s, "/")
	if len(s) < 2 {
		return len(s) > 0 && !blank[s[0]]
	}
	switch {
	case s[0] == '|' || s[0] == '<':
		return true
	case blank[s[0]] || isAlphanumeric(s[0]) && blank[s[1]] && s[1] != '>':
		return false
	case !isAlphanumeric(s[0]) || !isAlphanumeric(s[1]) && s[1] != '>':
		return true
	}
	a, b := s[0]|0x20, s[1]|0x20
	switch a {
	case 's':
		return b == 't' || b == 'o' || b == 'y' || s[1] == '>' || (b == 'p' || b == 'e') && len(s) > 2 && s[2]|0x20 == 'e' // not span, select
	case 't':
		return b == 'o' || b == 'h' || b == 'u'
	case 'e', 'b':
		return b == 'n' || b == 'o' || a == 'e' && b == 'x' || a == 'b' && b == 'e'
	case 'f':
		return b == 'u'
	case 'i':
		return b == 'n' || b == 'm'
	case 'a':
		return b == 'n' || b == 's'
	case 'h':
		return b == 'u'
	case 'u':
		return b == 'n'
	case 'm':
		return b == 'i'
	case 'r':
		return b == 'e'
	}
	return false
}

// window is what follows an opening bracket, as it is seen, and where each character of it ends.
type window struct {
	seen [maxTag]byte
	ends [maxTag]int
	n    int
}

// window reads from i on up to the first closing bracket, line end or another opening bracket, but for those at the
// beginning.
func (c *cleaner) window(i int, closing byte) (w window) {
	r := reader{view: &c.view, i: i}
	for opening := byte(0); w.n < maxTag; {
		ch, end := r.next()
		if ch == 0 || ch == '\n' || w.n > 1 && ch == opening {
			break
		}
		if w.n == 0 {
			opening = ch
		}
		w.seen[w.n], w.ends[w.n] = ch, end
		w.n++
		if ch == closing && (w.n < 2 || closing != '>' || w.seen[1] != '<') {
			break
		}
	}
	return w
}

// tag returns where a tag of a template ends that begins at i with a "<", and what is to stand in its place; 0 if none
// does.
func (c *cleaner) tag(i int) (end int, neutral string) {
	w := c.window(i, '>')
	s := string(w.seen[:w.n])
	if strings.HasPrefix(s, "<<") {
		if inner, to, ok := strings.Cut(strings.TrimPrefix(s[2:], "/"), ">>"); ok && strings.EqualFold(inner, "SYS") {
			return w.ends[len(s)-len(to)-1], Neutral
		}
		return 0, ""
	}
	if s == "<" || s == "" {
		return 0, ""
	}
	if s[len(s)-1] == '>' {
		if inner := s[1 : len(s)-1]; isBarred(inner) {
			return w.ends[w.n-1], Neutral
		}
	}
	word := strings.TrimPrefix(s[1:], "/")
	closes := len(word) < len(s)-1
	at := 1 + len(s[1:]) - len(word)
	word = strings.ToLower(word)
	for _, space := range spaces {
		if strings.HasPrefix(word, space) {
			return w.ends[at+len(space)-1], Neutral
		}
	}
	length := 0
	for length < len(word) && (isAlphanumeric(word[length]) || word[length] == '_' || word[length] == '-') {
		length++
	}
	switch name, rest := word[:length], word[length:]; {
	case tagName(name, rest):
		return w.ends[at+length-1], Neutral
	case ends(rest) && slices.Contains(roles[:], name):
		return w.ends[at+length-1], Role
	}
	if word == "s>" {
		if closes && !c.opened { // the end of a sequence, with no HTML before it that it would close
			return w.ends[w.n-1], Neutral
		}
		c.opened = true
	}
	return 0, ""
}

// ends reports whether a name in a tag is over, with this behind it.
func ends(rest string) bool { return rest == "" || strings.IndexByte("> /", rest[0]) >= 0 }

// tagName reports whether a name is one of a template's tags, with this behind it. Without a bracket there, or a blank,
// the short ones are words of programs: "<<EOS".
func tagName(name, rest string) bool {
	closed := strings.HasPrefix(rest, ">")
	for _, t := range tags {
		if name == t {
			switch t {
			case "invoke":
				return strings.HasPrefix(rest, " name")
			case "bos", "eos", "sop", "eop", "think":
				return closed
			}
			return ends(rest)
		}
	}
	for _, t := range numbered {
		if number, ok := strings.CutPrefix(name, t); ok && number != "" && strings.Trim(number, "0123456789") == "" {
			return closed
		}
	}
	return false
}

// isBarred reports whether what stands between angle brackets is a special token: "|im_start|", "|turn", "turn|".
// Others than those that are known have no blanks in them, so that a program's "<| f x |>" is none.
func isBarred(s string) bool {
	inner := strings.TrimPrefix(strings.TrimSuffix(s, "|"), "|")
	if len(inner) == len(s) || inner == "" {
		return false
	}
	known := strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return '_'
		}
		return r
	}, strings.ToLower(strings.TrimSpace(inner)))
	for _, b := range barred {
		if known == b {
			return true
		}
	}
	letters := 0
	for i := range len(inner) {
		switch b := inner[i]; {
		case isLetter(b):
			letters++
		case !isDigit(b) && b != '_' && b != '-':
			return false
		}
	}
	return letters > 1
}

// bracket returns where a word in brackets ends that a template has, and that begins at i with a "[", and what is to
// stand in its place; 0 if none does.
func (c *cleaner) bracket(i int) (end int, neutral string) {
	w := c.window(i, ']')
	s := string(w.seen[:w.n])
	if len(s) < 3 || s[len(s)-1] != ']' {
		return 0, ""
	}
	inner := s[1 : len(s)-1]
	if role, ok := turns[inner]; ok {
		if role {
			return w.ends[w.n-1], Role
		}
		return w.ends[w.n-1], Neutral
	}
	for _, b := range brackets {
		if inner == b || b[0] == '/' && strings.EqualFold(inner, b) {
			return w.ends[w.n-1], Neutral
		}
	}
	return 0, ""
}
