package declaration

import (
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/block"
)

// tasks reads who begins the client's sessions.
func (d *clientFile) tasks(f *block.Field) {
	s, ok := d.Text(f)
	switch {
	case !ok:
	case s == "client":
		d.client.Tasks.Client = true
	case s != "operator":
		const remedy = `tasks is %s. Write tasks = "client" if the program has a session for each conversation, or ` +
			`leave it out.`
		d.Problem(f.Val.At, "Invalid value", remedy, block.Quote(s))
	}
}

// taskHeader reads which header names a conversation.
func (d *clientFile) taskHeader(f *block.Field) {
	s, ok := d.Text(f)
	if !ok {
		return
	}
	if fault := access.TaskHeaderFault(s); fault != "" {
		const remedy = "%s cannot name a task: it %s. Write the header that the program sets for each " +
			"conversation, such as %s."
		d.Problem(f.Val.At, "Invalid header", remedy, block.Quote(s), fault, f.Example)
		return
	}
	d.client.Tasks.Header = s
}

// checkTasks checks what else has to be true for a client that begins its own sessions.
func (d *clientFile) checkTasks() {
	c, tasks, header := d.client, d.Given["tasks"], d.Given["task_header"]
	switch {
	case !c.Tasks.Client && header != nil:
		if tasks == nil || c.Tasks.Header != "" {
			const why = `task_header names the header of tasks = "client". Write that beside it, or remove it.`
			d.Problem(header.At, "Header for nothing", why)
		}
	case !c.Tasks.Client:
	case c.Name == access.Default:
		const why = `Any program may be the default client, and one whose model sets the header would forget what it ` +
			`has read. Declare the program as a client of its own with pfar client add.`
		d.Problem(tasks.Val.At, "Tasks of anybody", why)
	case c.Sessions == access.Connection:
		const why = `With sessions = "connection" each connection has a session already. Remove one of the two.`
		d.Problem(tasks.Val.At, "Sessions twice", why)
	case c.Relax == "" && d.Given["relax"] == nil:
		const why = `tasks = "client" lets the program begin clean sessions. Write relax = "why nothing that its model ` +
			`does begins one" beside it.`
		d.Problem(tasks.Val.At, "Missing reason", why)
	}
}
