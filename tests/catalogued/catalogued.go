// Package catalogued has declarations for tests: what comes of a known service when each question is answered with its
// example.
package catalogued

import "github.com/pfar/pfar/generator/catalog"

// Declare returns the declaration of a service that runs its package.
func Declare(c catalog.Service) (string, error) {
	text, err := c.Declaration(catalog.Choices{Answers: answersOf(c)})
	return string(text), err
}

func answersOf(c catalog.Service) map[string]string {
	answers := map[string]string{}
	for _, p := range c.Parameters {
		answers[p.Name] = p.Example
	}
	return answers
}
