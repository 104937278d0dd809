package handover

import "github.com/pfar/pfar/units"

// Remedy is what an owner does about a refusal.
type Remedy = units.Remedy

// These are the remedies that are known from a declaration alone: a sign-in to a provider, a value under a key of the
// vault, a value of a variable of pfar's environment, and another declaration of a server.
func SignIn(provider string) Remedy  { return units.ToDo(units.SignIn, provider) }
func StoreSecret(key string) Remedy  { return units.ToDo(units.StoreSecret, key) }
func SetVariable(name string) Remedy { return units.ToDo(units.SetVariable, name) }
func EditFile(server string) Remedy  { return units.ToDo(units.EditFile, server) }
