package form

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/flow"
)

// lineReader reads the form that people type:
//
//	mcp-github-search-code --query "login" --max-results=20 >> summarize-text >> mcp-slack-send-message --channel dev
//
// Each step is a node and its flags, and leads to the next. A + by itself stands for >>, which a line without quotes
// needs in a shell. Words have quotes and backslashes as in a shell; nothing is expanded. A flag that names an input of
// its node writes it to the store before the step, and one that names a param sets that; _ is written - there, or as it
// is. What is text is taken as it is, all else is JSON. A flag that is true or false needs no value. A flag for a list
// may stand several times.
//
// After a ; or a new line another chain begins. If its first word, or any other, is a step that is there already, it is
// that step, and - ACTION behind it is the action of the edge:
//
//	search --query "login" >> summarize-text; search - rate_limited >> backoff >> search
//
// In one chain, a node that stands twice is two steps: the second has the id NODE-2. An output whose name in the store
// an earlier step of the line writes has the name OUTPUT-2. A line that begins with # is a comment.
type lineReader struct {
	*decoder
	nodes  flow.Nodes
	ids    used
	writes used // names in the store that steps write
}

func (l *lineReader) read(text string) {
	words := split(l.decoder, text)
	for first := true; len(words) > 0 && !l.full(); {
		end := slices.IndexFunc(words, func(w word) bool { return w.sign == another })
		chain, rest := words, []word(nil)
		if end >= 0 {
			chain, rest = words[:end], words[end+1:]
		}
		if len(chain) > 0 {
			l.chain(chain, first)
			first = false
		}
		words = rest
	}
	if len(l.flow.Steps) == 0 && len(l.problems) == 0 {
		l.problem(flow.At{}, "", "the flow has no steps", "Write NODE --FLAG VALUE >> NODE.")
	}
}

// chain reads steps that lead one to the next. In the first chain every node is a new step.
func (l *lineReader) chain(words []word, first bool) {
	from, action := "", ""
	for start := 0; start <= len(words) && !l.full(); {
		end := start
		for end < len(words) && words[end].sign != then {
			end++
		}
		if end == start {
			at := words[min(start, len(words)-1)].at
			l.problem(at, "", "missing step beside >>", "Write NODE >> NODE.")
			from, action = "", ""
		} else {
			id, next := l.one(words[start:end], first)
			if from != "" && id != "" {
				l.edge(flow.Edge{From: from, To: id, Action: action, At: words[start].at})
			}
			if end == len(words) && next != "" {
				l.problem(words[start].at, id, "the action "+quote(next)+" leads to no step", "Write NODE - "+next+" >> NODE.")
			}
			from, action = id, next
		}
		start = end + 1
	}
}

// one reads a step, and the action with which it leads on.
func (l *lineReader) one(words []word, first bool) (id, action string) {
	name, flags := words[0], words[1:]
	if n := len(flags); n >= 2 && flags[n-2].text == "-" && !flags[n-2].quoted {
		flags, action = flags[:n-2], flags[n-1].text
	}
	if strings.HasPrefix(name.text, "-") || name.text == "" {
		l.problem(name.at, "", quote(name.text)+" is not the name of a node", "Begin the step with the name of a node.")
		return "", ""
	}
	if !first && l.named(name.text) != nil {
		if len(flags) > 0 {
			l.problem(flags[0].at, name.text, "the line has flags for an earlier step",
				"Write "+quote(flags[0].text)+" where the step first appears.")
		}
		return name.text, action
	}
	s := flow.Step{ID: l.ids.fresh(name.text), Node: name.text, At: name.at}
	if node, err := l.nodes.Find(s.Node); err == nil { // check.Check tells of one that is not known
		l.stepFlags(&s, node, flags)
		l.apart(&s, node)
	}
	l.step(s)
	return s.ID, action
}

// used are names that are taken, each with the number of the last one that was made of it.
type used map[string]int

// fresh takes a name, or NAME-2 and so on where it is taken.
func (u used) fresh(name string) string {
	free, n := name, u[name]
	for u[free] > 0 {
		n++
		free = fmt.Sprintf("%s-%d", name, n)
	}
	u[free] = 1
	u[name] = max(n, 1)
	return free
}

// apart gives each output of a step a name in the store that no earlier step writes.
func (l *lineReader) apart(s *flow.Step, node *flow.Node) {
	for _, out := range node.Outputs {
		if out.Own {
			continue
		}
		name := l.writes.fresh(out.Name)
		if name != out.Name {
			if s.Writes == nil {
				s.Writes = map[string]string{}
			}
			s.Writes[out.Name] = name
		}
	}
}

// stepFlags reads the flags of a step.
func (l *lineReader) stepFlags(s *flow.Step, node *flow.Node, words []word) {
	given := map[string][]json.RawMessage{}
	if len(words) > 2*maxFlags {
		l.problem(words[0].at, s.ID, fmt.Sprintf("the step has more than %d flags", maxFlags), "Remove some.")
		return
	}
	for i := 0; i < len(words) && !l.full(); i++ {
		name, text, whole := strings.Cut(words[i].text, "=")
		if !strings.HasPrefix(name, "--") || len(name) == 2 {
			l.problem(words[i].at, s.ID, "unexpected "+quote(words[i].text)+" in place of a flag",
				"Write --FLAG before it, or quote a value of several words.")
			continue
		}
		p, ok := l.portOf(words[i].at, s.ID, node, name[2:])
		if !ok {
			if !whole && i+1 < len(words) && !strings.HasPrefix(words[i+1].text, "--") {
				i++ // its value
			}
			continue
		}
		if !whole {
			next := i+1 < len(words) && (words[i+1].quoted || !strings.HasPrefix(words[i+1].text, "--"))
			switch {
			case p.Kind == argument.Boolean && (!next || words[i+1].text != "true" && words[i+1].text != "false"):
				text = "true"
			case !next:
				l.problem(words[i].at, s.ID, name+" has no value", "Write "+name+" VALUE.")
				continue
			default:
				i++
				text = words[i].text
			}
		}
		l.give(words[i].at, s.ID, p, text, given)
	}
	for _, port := range node.Inputs {
		if values := given[port.Name]; values != nil {
			s.Set = with(s.Set, port.Name, together(port, values))
		}
	}
	for _, port := range node.Params {
		if values := given[port.Name]; values != nil {
			s.Params = with(s.Params, port.Name, together(port, values))
		}
	}
}

// portOf finds what a flag of a step names: an input or a param, by its exact name or where - and _ are alike.
func (l *lineReader) portOf(at flow.At, step string, node *flow.Node, flag string) (argument.Property, bool) {
	ports := slices.Concat(node.Inputs, node.Params)
	var found []flow.Port
	for _, p := range ports {
		if p.Name == flag {
			return property(p), true
		}
		if alike(p.Name, flag) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 1:
		return property(found[0]), true
	case 0:
		l.problem(at, step, fmt.Sprintf("unknown flag --%s: %s has no such input or param", short(flag), node.ID),
			flagAdvice(flag, ports))
	default:
		l.problem(at, step, fmt.Sprintf("ambiguous flag --%s: matches %s and %s", short(flag), quote(found[0].Name),
			quote(found[1].Name)),
			"Write the exact name.")
	}
	return argument.Property{}, false
}
