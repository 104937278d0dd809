package desk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/chat"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/flows/wording"
	"github.com/pfar/pfar/units/operator/ask"
)

var _ chat.Asker = Asker{}

// Asker asks the gateway in the name of a declared client. The zero value reaches no gateway.
type Asker struct {
	HTTP    *http.Client // every connection goes to the gateway's socket (ask.Transport)
	Client  string       // "": the default client; never the operator
	Session string       // its handle; "": the default session
	Models  string       // the file to write if no model is declared, for words

	// Most is the most secret data of a run that the conversation may show: whoever keeps the conversation can read
	// it. The zero value shows none.
	Most gate.Confidentiality
}

// may reports whether the conversation may show data of a label.
func (a Asker) may(l gate.Label) bool { return l.Known() && l.Confidentiality <= a.Most }

const maxAnswer = 96 << 20 // bytes of one answer of the gateway

var errOperator = errors.New("a conversation cannot be the operator: a model decides there; name a declared client")

// errLost is of a question whose gateway has ended. Nothing of it is kept: the next gateway does not plan it again.
var errLost = errors.New("the gateway ended before it had a plan, and your question is lost. " +
	"Nothing was carried out. Ask it again")

// Plan has a model write a plan, and puts it into words.
func (a Asker) Plan(ctx context.Context, question string) (p chat.Plan, err error) {
	answer, err := a.order(ctx, flows.Order{Verb: flows.Ask, Words: question})
	switch d := answer.Draft; {
	case ask.HungUp(err):
		return p, errLost
	case err != nil:
		return p, err
	case len(answer.Problems) > 0:
		return p, errors.New(wording.Unplanned(answer))
	case d == nil || d.Flow == nil && d.Answer == "":
		return p, errors.New("the gateway gave no plan")
	case d.Flow == nil:
		return chat.Plan{Question: question, Text: said(d.Model, d.Answer)}, nil
	}
	shown := *answer.Draft
	shown.Reasoning = forPeople(shown.Reasoning)
	answer.Draft = &shown
	p = chat.Plan{
		Question: question, Text: strings.TrimSpace(wording.Plan(answer, gate.Verdict.String)),
		Flow: shown.Flow, Digest: shown.Digest,
	}
	p.Free = true
	denies := len(answer.Steps) == 0
	for _, s := range answer.Steps {
		denies = denies || s.Verdict != gate.Ask && s.Verdict != gate.Allow
		p.Free = p.Free && s.Verdict == gate.Allow
	}
	if denies {
		p.Flow, p.Digest, p.Free = nil, "", false
		p.Text += "\n\nThe gate denies a step of it, so nothing is carried out."
	}
	return p, nil
}

// Run carries a plan out, and has a model put the result into words. A result that no model may see, or that is more
// secret than the conversation may show, is not in the answer: the owner sees it at the command line.
func (a Asker) Run(ctx context.Context, p chat.Plan, tell func(text string)) (string, error) {
	run, err := a.follow(ctx, p, tell)
	if err != nil {
		return "", err
	}
	seeIt := "pfar flow show " + run.ID
	switch {
	case run.State != flows.Done:
		return "", fmt.Errorf("the run is %s. See %s%s", run.State, seeIt, a.because(run))
	case len(run.Result) == 0:
		return "The run is done. It has no result.", nil
	case !a.may(run.Label):
		return tooSecret(run.Label, seeIt), nil
	}
	answer, err := a.order(ctx, flows.Order{Verb: flows.Word, Run: run.ID, Words: p.Question})
	switch w := answer.Worded; {
	case err != nil:
		return "", fmt.Errorf("it is done, and no model has put the result into words. See it with %s\n%w", seeIt, err)
	case w == nil || w.Text == "":
		why := "the gateway gave no words"
		if w != nil && w.Why != "" {
			why = w.Why
		}
		return "It is done. No model has put the result into words. See it with " + seeIt + reasoned(why), nil
	case !a.may(w.Label):
		return tooSecret(w.Label, seeIt), nil
	default:
		return said(w.Model, w.Text), nil
	}
}

// tooSecret says that a result of a label is not shown here, and which command shows it.
func tooSecret(l gate.Label, seeIt string) string {
	return fmt.Sprintf("It is done. The result is %s, and this conversation does not show it. See it with %s",
		l.Confidentiality, seeIt)
}

// follow runs a plan until it is over, and tells of approvals that it waits for.
func (a Asker) follow(ctx context.Context, p chat.Plan, tell func(string)) (*flows.Status, error) {
	stream, err := a.open(ctx, flows.Order{Verb: flows.Run, Form: "json", Text: string(p.Flow), Digest: p.Digest})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	answers := json.NewDecoder(io.LimitReader(stream, maxAnswer))
	run, told := "", ""
	for {
		var answer flows.Answer
		err := answers.Decode(&answer)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && run == "":
			return nil, errors.New("the gateway ended before the run began")
		case err != nil:
			const words = "the gateway ended the connection; it goes on with the run when it is back: pfar flow show %s"
			return nil, fmt.Errorf(words, run)
		case len(answer.Problems) > 0:
			return nil, errors.New(wording.Unplanned(flows.Answer{Problems: answer.Problems}))
		case answer.Run == nil:
			continue
		}
		run = answer.Run.ID
		switch r := answer.Run; r.State {
		case flows.Done, flows.Failed, flows.Cancelled, flows.Unknown:
			return r, nil
		case flows.Waiting:
			if r.Approval != "" && r.Approval != told {
				told = r.Approval
				tell(fmt.Sprintf("The run waits for an approval. Give or refuse it at the command line with pfar approvals "+
					"show %s, or in the console. To end the run: pfar flow cancel %s%s", told, run, a.because(r)))
			}
		}
	}
}

// because is the reason of a run's state, behind what happened; "" if there is none, or if it may quote what the
// conversation does not show.
func (a Asker) because(r *flows.Status) string {
	if r.Reason == "" || !a.may(r.Label) {
		return ""
	}
	return reasoned(r.Reason)
}

// reasoned quotes a reason below what pfar says: it may have words of a server or a model.
func reasoned(why string) string { return "\n" + strings.TrimRight(wording.Quote(why), "\n") }

// order gives an order that has one answer. A model may take its time.
func (a Asker) order(ctx context.Context, o flows.Order) (answer flows.Answer, err error) {
	stream, err := a.open(ctx, o)
	if err != nil {
		return answer, err
	}
	defer stream.Close()
	err = json.NewDecoder(io.LimitReader(stream, maxAnswer)).Decode(&answer)
	switch {
	case ctx.Err() != nil:
		return answer, context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return answer, noAnswer{err}
	case err != nil:
		return answer, fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return answer, nil
}

// noAnswer is of an answer that is empty.
type noAnswer struct{ error }

func (noAnswer) Error() string { return "the gateway gave no answer" }

func (e noAnswer) Unwrap() error { return e.error }

func (a Asker) open(ctx context.Context, o flows.Order) (io.ReadCloser, error) {
	switch {
	case a.HTTP == nil:
		return nil, errors.New("no gateway answers questions here")
	case a.Client == access.Operator:
		return nil, errOperator
	}
	path := "/flows/" + cmp.Or(a.Client, access.Default) + "/" + cmp.Or(a.Session, access.DefaultSession)
	stream, err := ask.Open(ctx, a.HTTP, http.MethodPost, path, o)
	var no *ask.Refusal
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &no) && no.Status == flows.NoModel:
		return nil, fmt.Errorf("to have questions answered, write %s, as pfar-models(5) says%s",
			cmp.Or(a.Models, "a file in models.d"), reasoned(no.Error()))
	case no != nil:
		return nil, fmt.Errorf("the gateway refuses%s", reasoned(no.Error()))
	case err != nil:
		return nil, fmt.Errorf("asking the gateway: %w", err)
	}
	return stream, nil
}

// said is what a model answers, for people.
func said(model, text string) string {
	return strings.TrimSpace(wording.Said(model, forPeople(text)))
}

// forPeople is a model's text without the fence, which is for models.
func forPeople(text string) string {
	text, _ = fence.Inside(text)
	return text
}
