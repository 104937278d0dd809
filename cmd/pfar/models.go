package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator/ask"
)

const modelsHelp = `List the models of models.d: the host and the work of each, and the most secret data that may go
there. Models write the plans and answers of "pfar ask", and answer the steps llm and summarize-text of
flows. pfar has no model of its own. pfar-models(5) describes the files.`

// modelExample is a file of a model, for those who have none.
const modelExample = `url    = "https://api.example.com/v1"
model  = "small"
key    = "vault:model_key"
phases = ["plan", "answer"]
nodes  = true
`

// modelsVerb shows the models.
type modelsVerb struct{ *pfar }

func (c modelsVerb) modelsCommand() *cobra.Command {
	cmd := c.verb("models", "List the declared models", alone(c.list))
	cmd.Long, cmd.Example = modelsHelp, example("pfar models")
	return cmd
}

func (c modelsVerb) list(ctx context.Context) error {
	report, err := c.report(ctx)
	if err != nil {
		return err
	}
	list := append([]control.Model{}, report.Models...)
	switch {
	case c.json():
		return c.printJSON(list)
	case len(list) == 0:
		file := filepath.Join(filepath.Dir(report.Policies), "models.d", "main.hcl")
		fmt.Fprintf(c.stdout, "no model is declared; write %s, for example:\n\n%s", file, modelExample)
		return nil
	}
	rows := [][]cell{heading("MODEL", "ASKED AT", "AS", "FOR", "AUDIENCE", "KEY")}
	for _, m := range list {
		rows = append(rows, []cell{
			{m.Name, ""}, {escape(m.Host, oneLine), ""}, {escape(m.Model, oneLine), ""},
			{strings.Join(m.Uses, ", "), ""}, {m.Audience, ""}, c.keyCell(m),
		})
	}
	c.table(c.stdout, rows)
	for _, m := range list {
		if m.Missing != "" {
			fmt.Fprintf(c.stdout, "%s has no key: %s\n", m.Name, escape(m.Missing, oneLine))
		}
	}
	return nil
}

// keyCell says which secret a model has.
func (c modelsVerb) keyCell(m control.Model) cell {
	switch {
	case m.Key == "":
		return cell{"none", ""}
	case m.Missing != "":
		return cell{m.Key + ", missing", yellow}
	}
	return cell{m.Key, ""}
}

// withoutModel is the error of an order that needs a model which is not declared.
func (c flowClient) withoutModel(no *ask.Refusal) error {
	file := filepath.Join(c.dirs.Models(), "main.hcl")
	return fail(exitFailed, "%s", no.Reason).withHint("write %s, for example:\n\n%s", file, modelExample)
}
