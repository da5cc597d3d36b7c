package surface

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/store"
)

func texts[T ~string](names []T) []string {
	return Each(names, func(name T) string { return string(name) })
}

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
	check(reflect.TypeFor[AuditQuery](), "Action", texts(store.Actions()))
	check(reflect.TypeFor[NewToken](), "Role", texts(store.TokenRoles()))
}
