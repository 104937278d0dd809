package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/pfar/pfar/generator/declaration"
)

// declaredClients is the folder of clients, read.
type declaredClients struct {
	dir string
	declaration.ClientSet
}

// taken returns the file that keeps a new client from this name.
func (d declaredClients) taken(name string) string { return d.Taken(os.DirFS(d.dir), d.dir, name) }

func (d declaredClients) find(name string) (declaration.Client, error) {
	for _, one := range d.Clients {
		if one.Name == name {
			return one, nil
		}
	}
	for _, b := range d.Broken {
		if b.Name == name {
			return declaration.Client{}, fail(exitFailed, "the declaration of %q, %s, has an error", name, b.File).withHint("pfar check")
		}
	}
	return declaration.Client{}, noClient(name)
}

// clients reads the folder that the running pfard reads, or else the default one.
func (c *pfar) clients(ctx context.Context) (declaredClients, error) {
	dir := c.dirs.Clients()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if report, err := c.report(ctx); err == nil && report.Clients != "" {
		dir = report.Clients
	}
	if _, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // what cannot be read is not empty
		return declaredClients{}, fmt.Errorf("reading the declarations of clients: %w", err)
	}
	return declaredClients{dir, declaration.LoadClients(os.DirFS(dir), dir, declaration.ClientOptions{})}, nil
}

func (c *pfar) offeredClients(ctx context.Context) ([]string, error) {
	clients, err := c.clients(ctx)
	var names []string
	for _, one := range clients.Clients {
		names = append(names, completion(one.Name, one.Description))
	}
	return names, err
}
