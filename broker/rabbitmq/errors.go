package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
)

func unavailable(cause error) error {
	if errors.Is(cause, holdfast.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", holdfast.ErrUnavailable, plain(cause))
}

// plain takes the driver's type off an error, which is nobody else's business, and
// keeps what RabbitMQ said.
func plain(err error) error {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return errors.New(e.Reason)
	}
	return err
}

// replied reports whether the error is RabbitMQ's answer with this code.
func replied(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && e.Code == code
}

// explain says where a connection could not be made and what to do about it.
func explain(err error, n node) error {
	code := 0
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		code = e.Code
	}
	switch code {
	case amqp.AccessRefused:
		return fmt.Errorf("RabbitMQ at %s does not accept user %q: %w; check user, password and virtual host in the AMQP URL", n.addr, n.user, plain(err))
	case amqp.NotAllowed:
		return fmt.Errorf("RabbitMQ at %s: %w; check the virtual host in the AMQP URL", n.addr, plain(err))
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("cannot connect to RabbitMQ at %s: %w; check the host in the AMQP URL, and the certificates that cacertfile, certfile and keyfile name there", n.addr, plain(err))
	}
	return fmt.Errorf("cannot connect to RabbitMQ at %s: %w; check that it runs there and that the AMQP URL is right", n.addr, plain(err))
}
