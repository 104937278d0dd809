package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/control"
)

const operatorHelp = `Invite, list and remove the people who use the remote console, from other machines.
They sign in with a passkey, which a phone, a security key or a computer keeps.

"pfar operator invite NAME" prints a link. Send it only to NAME: pfar takes the first person who adds a passkey with
it for NAME.
The role says what NAME may do. "look" sees the pages. "approve" also answers calls, gives grants and makes clean
sessions. "change" also accepts definitions, resets, thaws and ends sessions, removes stains, starts, stops and
restarts servers, and allows a host that pfar refused to a server.

"pfar operator role NAME ROLE" changes the role of NAME, who has a passkey. It prints no link.

Start the console first; see pfard(8). Only root and the user who runs pfard can invite, list and remove operators, and
change roles.`

// operatorVerb says who the operators at other machines are.
type operatorVerb struct{ *pfar }

func (o operatorVerb) operatorCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "operator", Short: "Invite, list and remove people who use the remote console", Long: operatorHelp,
		Example: example("pfar operator invite alice --role approve --at https://pfar.example.com:7443",
			"pfar operator invite alice", "pfar operator list", "pfar operator role alice look", "pfar operator remove alice"),
		Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			return usage("which of invite, list, remove, role?").withHint("pfar operator --help")
		},
	}
	group.AddCommand(o.inviteCommand(),
		o.verb("list", "List the operators, and who is invited", alone(o.list)),
		o.outputFlag(&cobra.Command{
			Use: "remove NAME", Short: "Remove an operator, all their passkeys and an open invitation",
			ValidArgsFunction: offerFirst(o.offered), RunE: onOne(o.remove),
		}),
		o.outputFlag(&cobra.Command{
			Use: "role NAME ROLE", Short: "Change the role of an operator who has a passkey: look, approve or change",
			ValidArgsFunction: o.offerRole,
			RunE: func(cmd *cobra.Command, args []string) error {
				return o.changeRole(cmd.Context(), control.Invited{Name: args[0], Role: passkey.Role(args[1])})
			},
		}),
	)
	return group
}

// offerRole completes an operator, and then a role.
func (o operatorVerb) offerRole(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return roles(), noFiles
	}
	return offerFirst(o.offered)(cmd, args, typed)
}

func roles() (list []string) {
	for _, r := range passkey.Roles {
		list = append(list, string(r))
	}
	return list
}

func (o operatorVerb) inviteCommand() *cobra.Command {
	var role, at string
	cmd := o.outputFlag(&cobra.Command{
		Use: "invite NAME", Short: "Print a link by which a person adds a passkey",
		ValidArgsFunction: offerFirst(o.offered),
		RunE: func(cmd *cobra.Command, args []string) error {
			want := control.Invited{Name: args[0], Role: passkey.Role(role), Origin: at}
			return o.invite(cmd.Context(), want)
		},
	})
	cmd.Flags().StringVar(&role, "role", "", "`ROLE` of the operator: look, approve or change")
	cmd.Flags().StringVar(&at, "at", "", "`URL` of the console, https://HOST:PORT; by default that of the newest passkey")
	cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(roles(), noFiles))
	cmd.RegisterFlagCompletionFunc("at", cobra.NoFileCompletions)
	return cmd
}

func (o operatorVerb) invite(ctx context.Context, want control.Invited) error {
	if want.Role != "" && !slices.Contains(passkey.Roles, want.Role) {
		return usage("no role %q", want.Role).withHint("--role look, --role approve or --role change")
	}
	if want.Origin != "" {
		if _, err := passkey.Origin(want.Origin); err != nil {
			return usage("%w", err)
		}
	}
	r, err := o.control().Do(ctx, onOperator(control.Invite, want))
	if err != nil {
		return err
	}
	if o.json() {
		return o.printJSON(map[string]string{"name": want.Name, "link": r.Link})
	}
	name := escape(want.Name, oneLine)
	fmt.Fprintf(o.stderr, "\nGive %s this link:\n\n  %s\n\n", name, escape(r.Link, oneLine))
	fmt.Fprintf(o.stderr, "The link works once, within an hour. Whoever first adds a passkey with it becomes %s.\n", name)
	return nil
}

func onOperator(verb control.Verb, who control.Invited) control.Request {
	return control.Request{Verb: verb, SettingUp: control.SettingUp{Operator: &who}}
}

func (o operatorVerb) ask(ctx context.Context) (control.Response, error) {
	return o.control().Do(ctx, control.Request{Verb: control.Operators})
}

func (o operatorVerb) list(ctx context.Context) error {
	r, err := o.ask(ctx)
	if err != nil {
		return err
	}
	if o.json() {
		return o.printJSON(map[string]any{
			"operators": append([]passkey.Operator{}, r.Operators...), "invited": append([]control.Invited{}, r.Invited...),
		})
	}
	if len(r.Operators)+len(r.Invited) == 0 {
		fmt.Fprintln(o.stderr, "nobody can sign in at the remote console: "+
			"pfar operator invite NAME --role approve --at https://HOST:PORT")
		return nil
	}
	if len(r.Operators) > 0 {
		rows := [][]cell{heading("NAME", "ROLE", "PASSKEYS", "ADDED")}
		for _, one := range r.Operators {
			added := ""
			if n := len(one.Keys); n > 0 {
				added = minute(one.Keys[n-1].Added)
			}
			rows = append(rows, []cell{{one.Name, ""}, {string(one.Role), ""}, {strconv.Itoa(len(one.Keys)), ""}, {added, ""}})
		}
		o.table(o.stdout, rows)
	}
	if len(r.Operators) > 0 && len(r.Invited) > 0 {
		fmt.Fprintln(o.stdout)
	}
	if len(r.Invited) > 0 {
		rows := [][]cell{heading("INVITED", "ROLE", "CONSOLE", "UNTIL")}
		for _, i := range r.Invited {
			rows = append(rows, []cell{{i.Name, ""}, {string(i.Role), ""}, {i.Origin, ""}, {minute(i.Until), ""}})
		}
		o.table(o.stdout, rows)
	}
	return nil
}

func (o operatorVerb) remove(ctx context.Context, name string) error {
	r, err := o.ask(ctx)
	if err != nil {
		return err
	}
	invited := slices.ContainsFunc(r.Invited, func(i control.Invited) bool { return i.Name == name })
	if !invited && !slices.ContainsFunc(r.Operators, func(one passkey.Operator) bool { return one.Name == name }) {
		return fail(exitNoSuch, "no operator %q", name).withHint(`"pfar operator list" lists the operators`)
	}
	if _, err := o.control().Do(ctx, onOperator(control.Dismiss, control.Invited{Name: name})); err != nil {
		return err
	}
	if o.json() {
		return o.printJSON(map[string]string{"name": name, "result": "removed"})
	}
	fmt.Fprintf(o.stdout, "removed %s\n", escape(name, oneLine))
	return nil
}

// changeRole gives an operator another role.
func (o operatorVerb) changeRole(ctx context.Context, want control.Invited) error {
	if !slices.Contains(passkey.Roles, want.Role) {
		return usage("no role %q", want.Role).withHint("look, approve or change")
	}
	r, err := o.ask(ctx)
	if err != nil {
		return err
	}
	if len(passkey.Find(r.Operators, want.Name).Keys) == 0 {
		const hint = `"pfar operator list" lists the operators`
		return fail(exitNoSuch, "no operator %q has a passkey", want.Name).withHint(hint)
	}
	if _, err := o.control().Do(ctx, onOperator(control.ChangeRole, want)); err != nil {
		return err
	}
	if o.json() {
		return o.printJSON(map[string]string{"name": want.Name, "role": string(want.Role)})
	}
	fmt.Fprintf(o.stdout, "%s has the role %s\n", escape(want.Name, oneLine), want.Role)
	return nil
}

// offered are the operators, and those who are invited.
func (o operatorVerb) offered(ctx context.Context) (names []string, err error) {
	r, err := o.ask(ctx)
	for _, one := range r.Operators {
		names = append(names, completion(one.Name, string(one.Role)))
	}
	for _, i := range r.Invited {
		if passkey.Find(r.Operators, i.Name).Name == "" {
			names = append(names, completion(i.Name, "invited"))
		}
	}
	return names, err
}
