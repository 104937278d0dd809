package gate

// Effect is what a call of a tool does. The zero value is not known, which denies.
type Effect uint8

const (
	None         Effect = iota + 1 // it only reads
	Reversible                     // what it does can be undone
	Irreversible                   // it cannot: a mail is sent, a file is gone
)

func (e Effect) String() string               { return word(effects, e) }
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }
func (e *Effect) UnmarshalText(b []byte) error {
	return read(effects, b, e)
}

// Facts are what is known of a tool, a prompt, a resource: what comes out of it, who sees what goes in, what it does.
// The zero value is not known, which denies; Worst is what is taken for a tool of which nothing has been said.
type Facts struct {
	Output    Label           `json:"output"`
	Audience  Confidentiality `json:"audience"` // the highest that its arguments may carry; Public: it reaches the open world, reading included
	Effect    Effect          `json:"effect"`
	Forbidden string          `json:"forbidden,omitempty"` // why nobody may call it; "": somebody may
	Tier      string          `json:"tier,omitempty"`      // that its profile has to have: "browser/vision"; "": none
	Extract   bool            `json:"extract,omitempty"`   // its output is typed values without free text by the accepted outputSchema, so that raw becomes extracted (Extracts)
	Remembers bool            `json:"remembers,omitempty"` // what goes in may come out later, whatever the effect

	From From `json:"from"`
}

// From says where each of the facts comes from, for audit and explain: "owner: notion.hcl", "policy: strict.hcl:12",
// "service: notion", "sandbox: reaches nothing" (Confinement), "undo: kept", "undo: not kept", "hint",
// "unknown".
type From struct {
	Confidentiality string `json:"confidentiality"`
	Integrity       string `json:"integrity"`
	Audience        string `json:"audience"`
	Effect          string `json:"effect"`
}

// Worst is what is taken of a tool of which nothing has been said.
var Worst = Facts{
	Output: Label{Sensitive, Raw}, Audience: Public, Effect: Irreversible,
	From: From{"unknown", "unknown", "unknown", "unknown"},
}

// known reports whether every fact is.
func (f Facts) known() bool {
	return f.Output.Known() && f.Audience >= Public && f.Audience <= Secret && f.Effect >= None && f.Effect <= Irreversible
}

// Stained are the facts of a tool whose server holds what a session of this label wrote to it: nothing comes out
// cleaner or less secret than what went in, and nothing that was raw becomes an extract. The zero Label is no stain.
func (f Facts) Stained(by Label) Facts {
	f.Extract = f.Extract && by.Integrity < Raw
	if by.Integrity > f.Output.Integrity {
		f.From.Integrity = "stain"
	}
	if by.Confidentiality > f.Output.Confidentiality {
		f.From.Confidentiality = "stain"
	}
	f.Output = f.Output.Join(by)
	return f
}

// Extracts reports whether what comes back is raw and counts as extracted, as long as it is no more than typed values.
// Whoever passes on anything else joins that it is raw before.
func (f Facts) Extracts() bool { return f.Extract && f.Output.Known() && f.Output.Integrity == Raw }

// Joined is the label of a session from the dispatch of a call on. What is not known is taken for the worst that there
// is.
func Joined(s Session, f Facts) Label {
	output := f.Output.worstUnknown()
	if f.Extracts() {
		output.Integrity = Extracted
	}
	return s.Label.worstUnknown().Join(output)
}
