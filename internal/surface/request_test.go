package surface

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/store"
)

// A tag repeats names of package store, because a tag must be a constant.
func TestEnumsHaveTheNamesOfTheStore(t *testing.T) {
	t.Parallel()
	check := func(request reflect.Type, member string, want []string) {
		field, _ := request.FieldByName(member)
		names := strings.Split(field.Tag.Get("enum"), ",")
		slices.Sort(names)
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("%s.%s allows %s, package store has %s", request.Name(), member, names, want)
		}
	}
	check(reflect.TypeFor[AuditQuery](), "Action", Each(store.Actions(), func(a store.Action) string { return string(a) }))
	check(reflect.TypeFor[NewToken](), "Role", Each(store.TokenRoles(), func(r store.TokenRole) string { return string(r) }))
}
