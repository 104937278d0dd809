package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
)

const grantsHelp = `List the grants. A grant lets a session call a tool without a question, for a time, a number of
calls and a number of bytes of arguments. You give one with an approval: "pfar approvals approve ID --grant".

A grant ends when its bounds are used up, when you revoke it, and when its session ends or is reset. It is void if the
client, the tool, its facts, the policy or the profile change.`

// grantsVerb shows what is allowed beforehand, and revokes it.
type grantsVerb struct{ *pfar }

func (c grantsVerb) grantsCommand() *cobra.Command {
	root := c.outputFlag(&cobra.Command{
		Use: "grants", Short: "List the grants, which let calls run without a question, and revoke them",
		Long:    grantsHelp,
		Example: example("pfar grants", "pfar grants revoke k3bq7x-...", "pfar grants revoke --all"),
		RunE:    alone(c.list),
	})
	all := false
	revoke := c.outputFlag(&cobra.Command{
		Use: "revoke [ID]", Short: "End a grant at once", Args: cobra.MaximumNArgs(1), ValidArgsFunction: offerFirst(c.offered),
		RunE: func(cmd *cobra.Command, args []string) error { return c.revoke(cmd.Context(), args, all) },
	})
	revoke.Flags().BoolVar(&all, "all", false, "end all grants")
	root.AddCommand(c.verb("list", "List the grants", alone(c.list)), revoke)
	return root
}

func (c grantsVerb) list(ctx context.Context) error {
	all, err := operatorList[operator.Grant](ctx, c.pfar, "/grants", "nothing is granted")
	if err != nil || len(all) == 0 {
		return err
	}
	rows := [][]cell{heading("ID", "SESSION", "TOOL", "LEFT", "CALLS", "BYTES", "USED", "BY")}
	for _, g := range all {
		left := max(g.Until.Sub(c.now()), 0).Round(time.Second).String()
		used := fmt.Sprintf("%d calls, %d bytes", g.Used, g.UsedBytes)
		rows = append(rows, []cell{
			{g.ID, ""}, {cut(g.Client+"/"+g.Session, 30), ""}, {cut(visible.Reveal(grantedTool(&g)), 40), ""}, {left, ""},
			{strconv.Itoa(g.Calls), ""}, {strconv.FormatInt(g.Bytes, 10), ""}, {used, ""}, {visible.Reveal(g.By.Name), ""},
		})
	}
	c.table(c.stdout, rows)
	return nil
}

// grantedTool is what a grant is for.
func grantedTool(g *operator.Grant) string {
	if g.Public {
		return publicReads
	}
	return g.Server + "." + g.Name
}

const publicReads = "reads of public sources"

func (c grantsVerb) offered(ctx context.Context) ([]string, error) {
	var all []operator.Grant
	err := c.askOperator(ctx, http.MethodGet, "/grants", nil, &all)
	var ids []string
	for _, g := range all {
		if visible.ShellSafe(g.ID) {
			ids = append(ids, completion(g.ID, g.Client+" "+grantedTool(&g)))
		}
	}
	return ids, err
}

func (c grantsVerb) revoke(ctx context.Context, ids []string, all bool) error {
	switch {
	case all == (len(ids) == 1):
		return usage("name one grant, or --all").withHint("pfar grants")
	case all:
		return c.answered(ctx, "/grants/revoke", struct{}{})
	}
	path, err := approvalPath("/grants/", ids[0])
	if err != nil {
		return err
	}
	return c.answered(ctx, path+"/revoke", struct{}{})
}
