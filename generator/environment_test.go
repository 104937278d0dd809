package generator

import (
	"reflect"
	"slices"
	"testing"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// TestDeliveries: a variable holds what its delivery says, and there is no plan with an unknown delivery.
func TestDeliveries(t *testing.T) {
	for _, test := range []struct {
		deliver broker.Delivery
		want    sandbox.Env // the zero value: an error
	}{
		{broker.InEnvironment, sandbox.Env{Name: "A", Credential: "A"}},
		{broker.InFile, sandbox.Env{Name: "A", Value: "/run/secrets/A"}},
		{broker.OnWire, sandbox.Env{Name: "A", Credential: "A"}},
		{"env", sandbox.Env{}}, // a declaration's word, and no Delivery
		{"socket", sandbox.Env{}},
	} {
		s := parsed(t, `auth = { A = "vault:a" }`+"\n"+plain)
		s.Credentials[0].Deliver = test.deliver
		p, diags := Compile(s, testHost(t, ""))
		if test.want == (sandbox.Env{}) {
			if !diags.HasErrors() || !reflect.DeepEqual(p, plan.Plan{}) {
				t.Errorf("deliver %q: %v, and a plan of %q with %+v", test.deliver, diags, p.Name, p.Sandbox.Env)
			}
			continue
		}
		if diags.HasErrors() || !slices.Contains(p.Sandbox.Env, test.want) {
			t.Errorf("deliver %q: %v, want %+v in %+v", test.deliver, diags, test.want, p.Sandbox.Env)
		}
	}
}
