package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// versionVerb prints the version.
type versionVerb struct{ *streams }

func (c versionVerb) versionCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			if c.json() {
				return c.printJSON(b)
			}
			fmt.Fprintf(c.stdout, "pfar %s\n", b)
			return nil
		},
	})
}
