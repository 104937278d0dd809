package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/flows/wording"
	"github.com/pfar/pfar/units/operator/ask"
)

const askHelp = `Have a model write a plan for TEXT, show the whole plan, and carry it out after your yes. At the end a
model writes the answer.

The model that plans reads TEXT, and descriptions of tools that you or pfar have accepted; it never sees a
result. The plan is data: no result changes its steps, and each call passes the gate. The model that writes
the answer reads the result between marks, and can call nothing. If the result is more secret than that
model may see, pfar prints the result itself.

pfar asks as the client of --client, or as the client "default", but never as the operator. With --yes pfar
does not ask you, but still waits if the gate asks. With --from the first step gets the text of a file; the
model that plans does not see that text. With --no-cache pfar calls pure tools
again, instead of using their earlier results. "pfar models" lists the models; pfar-models(5) says how to declare one.`

// askVerb has a model plan what a person asks for.
type askVerb struct{ *pfar }

// askFlags are those of pfar ask.
type askFlags struct {
	yes, planOnly, fresh bool
	from, model          string
}

func (c askVerb) askCommand() *cobra.Command {
	var f askFlags
	cmd := c.outputFlag(&cobra.Command{
		Use:   "ask TEXT",
		Short: "Have a model plan a task, and carry the plan out after your yes",
		Long:  askHelp,
		Example: example(`pfar ask "what is new in the issues of acme/site?"`,
			`pfar ask "summarize this and post it to #team" --from notes.txt --client desk`,
			`pfar ask "close issue 7" --plan-only --json`),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0], f) },
	})
	flags := cmd.Flags()
	flags.BoolVar(&f.yes, "yes", false, "carry out the plan without asking you; the gate may still ask")
	flags.BoolVar(&f.planOnly, "plan-only", false, "print the plan, and carry nothing out")
	flags.StringVar(&f.from, "from", "", "`FILE` with the text for the first step; - for standard input")
	flags.StringVar(&f.model, "model", "", "`NAME` of the model that plans")
	noCache(flags, &f.fresh)
	c.persona.flags(flags)
	return cmd
}

// inquiry is all that has come of it, for programs.
type inquiry struct {
	Draft  *flows.Draft   `json:"draft"`
	Steps  []flows.Judged `json:"steps,omitempty"`
	Run    *flows.Status  `json:"run,omitempty"`
	Worded *flows.Worded  `json:"worded,omitempty"`
}

const (
	maxAsked = 16 << 10 // bytes of a question
	maxGiven = 1 << 20  // bytes of a file for the first step
)

func (c askVerb) run(ctx context.Context, words string, f askFlags) error {
	words = strings.TrimSpace(words)
	switch {
	case words == "" || len(words) > maxAsked || !utf8.ValidString(words):
		return usage("TEXT has %d bytes: use 1 to %d bytes of UTF-8", len(words), maxAsked)
	case !f.yes && !f.planOnly:
		if err := c.canAsk(false, "--plan-only"); err != nil {
			return err
		}
	}
	input, err := c.given(ctx, f.from)
	if err != nil {
		return err
	}
	if c.persona.client == access.Operator {
		return errOperator
	}
	answer, err := c.order(ctx, flows.Order{
		Verb: flows.Ask, Words: words, Model: f.model, Input: input, Fresh: f.fresh,
	})
	switch {
	case ask.HungUp(err):
		return fail(exitFailed, "the gateway ended before it had a plan, and the question is lost; nothing was carried out").
			withHint("ask it again: pfar ask %s", shellWord(words))
	case err != nil:
		return err
	}
	all := inquiry{Draft: answer.Draft, Steps: answer.Steps}
	switch d := answer.Draft; {
	case len(answer.Problems) > 0:
		return c.unplanned(answer)
	case d == nil || d.Flow == nil && d.Answer == "":
		return errors.New("the gateway gave no plan")
	case d.Flow == nil:
		if c.json() {
			return c.printJSON(all)
		}
		c.answered(d.Model, d.Answer)
		return nil
	case f.planOnly && c.json():
		return c.printJSON(all)
	case f.planOnly:
		c.show(c.stdout, answer)
		return nil
	}
	show := func(w io.Writer) { c.show(w, answer) }
	if err := c.ask(ctx, f.yes, "Carry it out?", show); err != nil {
		return err
	}
	order := flows.Order{
		Verb: flows.Run, Form: "json", Text: string(answer.Draft.Flow), Digest: answer.Draft.Digest, Input: input,
		Fresh: f.fresh,
	}
	if all.Run, err = c.follow(ctx, order); err != nil {
		return err
	}
	return c.word(ctx, words, all)
}

// order gives an order that has one answer. A model may take its time.
func (c askVerb) order(ctx context.Context, o flows.Order) (a flows.Answer, err error) {
	stream, err := flowClient(c).openFlows(ctx, o, access.Default)
	if err != nil {
		return a, err
	}
	defer stream.Close()
	err = json.NewDecoder(io.LimitReader(stream, maxFlowAnswer)).Decode(&a)
	switch {
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return a, fmt.Errorf("the gateway gave no answer: %w", err)
	case err != nil:
		return a, fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return a, nil
}

// words are those of a model or a stranger, safe to look at. A person sees them without the fence, which is for models.
func (c askVerb) words(text string) string { return escape(unfenced(text, c.stdout), keepLines) }

// answered prints words of a model, marked as such: they may look like pfar's own.
func (c askVerb) answered(model, text string) {
	io.WriteString(c.stdout, wording.Said(model, unfenced(text, c.stdout)))
}

// unfenced is a text without its fence, if a person reads it: on a terminal.
func unfenced(text string, w io.Writer) string {
	if isTerminal(w) {
		text, _ = fence.Inside(text)
	}
	return text
}

// given reads the file for the first step; nil: there is none.
func (c askVerb) given(ctx context.Context, file string) (*string, error) {
	if file == "" {
		return nil, nil
	}
	b, err := interruptible(ctx, func() ([]byte, error) {
		in, done, err := c.input(file)
		if err != nil {
			return nil, err
		}
		defer done()
		return io.ReadAll(io.LimitReader(in, maxGiven+1))
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the text for the first step: %w", err)
	case len(b) > maxGiven || !utf8.Valid(b):
		return nil, usage("%q is not a UTF-8 text of at most %d KiB", file, maxGiven>>10)
	}
	text := string(b)
	return &text, nil
}

// unplanned says why there is no plan.
func (c askVerb) unplanned(a flows.Answer) error {
	return fail(exitFailed, "%s", wording.Unplanned(a)).
		withHint("use other words, or write the flow yourself: pfar flow --help")
}

// show prints a plan whole: what the model says of it, and what pfar flow plan prints of any.
func (c askVerb) show(w io.Writer, a flows.Answer) {
	d := a.Draft
	fmt.Fprintf(w, "A plan by the model %s:\n", visible.Reveal(d.Model))
	fmt.Fprintln(w, wording.Quote(unfenced(d.Reasoning, w)))
	flowPrinter(c).printPlan(w, a)
	if d.LeftOut > 0 {
		fmt.Fprintf(w, "\n%s\n", wording.LeftOut(d.LeftOut))
	}
}

// follow runs a plan and tells how it goes, until the run is over. A run that waits goes on waiting.
func (c askVerb) follow(ctx context.Context, order flows.Order) (*flows.Status, error) {
	stream, err := flowClient(c).openFlows(ctx, order, access.Default)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	told := progress{flowPrinter: flowPrinter(c)}
	answers := json.NewDecoder(io.LimitReader(stream, maxFlowAnswer))
	var trace []flows.Step // of all answers: each has the calls that none before has had
	for {
		var a flows.Answer
		err := answers.Decode(&a)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, told.left(context.Cause(ctx))
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, told.left(nil)
		case err != nil:
			return nil, fmt.Errorf("reading the gateway's answer: %w", err)
		case len(a.Problems) > 0:
			return nil, c.unplanned(flows.Answer{Problems: a.Problems})
		case a.Run == nil:
			continue
		}
		told.tell(a.Run)
		trace = append(trace, a.Run.Trace...)
		switch a.Run.State {
		case flows.Done, flows.Failed, flows.Cancelled, flows.Unknown:
			told.clear()
			a.Run.Trace = trace
			return a.Run, nil
		}
	}
}

// word has the result of a run put into words, and prints it.
func (c askVerb) word(ctx context.Context, words string, all inquiry) error {
	run := all.Run
	if run.State != flows.Done {
		return c.undone(all)
	}
	if len(run.Result) > 0 {
		answer, err := c.order(ctx, flows.Order{Verb: flows.Word, Run: run.ID, Words: words})
		if err != nil {
			answer.Worded = &flows.Worded{Why: err.Error()}
		}
		all.Worded = answer.Worded
	}
	if c.json() {
		return c.printJSON(all)
	}
	switch w := all.Worded; {
	case w == nil:
		fmt.Fprintln(c.stderr, "done; there is no result")
	case w.Text != "":
		c.answered(w.Model, w.Text)
	default:
		fmt.Fprintf(c.stderr, "no model wrote an answer: %s. The result itself:\n",
			strings.TrimSuffix(escape(w.Why, oneLine), "."))
		return c.printRaw(run.Result)
	}
	return nil
}

// printRaw prints the result of a last step: a tool's, or the value of a native node.
func (c askVerb) printRaw(raw json.RawMessage) error {
	var r result
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		fmt.Fprintln(c.stdout, c.words(text))
		return nil
	case json.Unmarshal(raw, &r) == nil && len(r.Content)+len(r.Structured) > 0:
		return printText(c.stdout, r, isTerminal(c.stdout))
	}
	_, err := fmt.Fprintln(c.stdout, string(escapeJSON(raw)))
	return err
}

// undone is the error of a run that has not come to its end.
func (c askVerb) undone(all inquiry) error {
	run := all.Run
	if c.json() {
		if err := c.printJSON(all); err != nil {
			return err
		}
	}
	code := exitFailed
	if n := len(run.Trace); n > 0 && run.State == flows.Failed {
		if last := run.Trace[n-1]; last.Class != "" {
			code = exitOf(last.Class)
		} else if last.Verdict == gate.Deny {
			code = exitDenied
		}
	}
	return fail(code, "the run is %s: %s", run.State, escape(run.Reason, oneLine)).withHint("pfar flow show %s", run.ID)
}
