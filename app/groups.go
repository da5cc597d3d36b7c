package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// namedGroups is the maximum number of groups in the error of an ambiguous fingerprint.
const namedGroups = 5

// Fingerprint returns the fingerprint of the known group that begins with the given digits. A whole fingerprint may be of
// an unknown group. It returns an ErrNotFound if no group begins with the digits, and an ErrInvalid if there are several
// or if text does not consist of digits.
func (b *Backend) Fingerprint(ctx context.Context, text string) (string, error) {
	digits, whole, err := holdfast.ParseFingerprint(text)
	if err != nil || whole {
		return digits, err
	}
	found, err := b.Store.Fingerprints(ctx, digits, namedGroups+1)
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", fmt.Errorf("%w: there is no group that begins with %s", holdfast.ErrNotFound, digits)
	case len(found) == 1:
		return found[0], nil
	}
	more := ""
	if len(found) > namedGroups {
		found, more = found[:namedGroups], " and more"
	}
	return "", fmt.Errorf("%w: several groups begin with %s: %s%s; add digits", holdfast.ErrInvalid, digits, strings.Join(found, ", "), more)
}

// KnownFilter returns a filter with the whole fingerprint instead of its first digits; see Fingerprint. It returns an
// ErrNotFound if the operation of the filter does not exist.
func (b *Backend) KnownFilter(ctx context.Context, f store.Filter) (_ store.Filter, err error) {
	if f.Operation != 0 {
		if _, err := b.Store.Operation(ctx, f.Operation); err != nil {
			return f, err
		}
	}
	if f.Fingerprint != "" {
		f.Fingerprint, err = b.Fingerprint(ctx, f.Fingerprint)
	}
	return f, err
}
