package kuscia

import (
	"crypto/tls"
	"crypto/x509"

	"slipway.io/slipway/api/auth"
)

// Protocol is how Kuscia's API is guarded.
type Protocol string

// The protocols.
const (
	// NOTLS: neither encrypted nor with a token; for this machine alone.
	NOTLS Protocol = "NOTLS"
	// TLS: encrypted, with a token.
	TLS Protocol = "TLS"
	// MTLS: as TLS, and clients show a certificate too.
	MTLS Protocol = "MTLS"
)

// Security is how Kuscia's API is guarded, with all that it takes. The zero Security is that of NOTLS on a loopback address.
type Security struct {
	// TLS is nil where nothing is encrypted.
	TLS *tls.Config
	// Token is what every request has to show.
	Token auth.Token
	// Hosts are the names that requests may be addressed to.
	Hosts auth.Hosts
}

// guard is what comes before the token, which Kuscia's clients show in a header of its own.
func (s Security) guard() auth.Guard { return auth.Guard{Hosts: s.Hosts} }

// authorities are the CAs that a client's certificate has to come from; nil: none is asked for.
func (s Security) authorities() *x509.CertPool {
	if s.TLS == nil {
		return nil
	}
	return s.TLS.ClientCAs
}

// Files are where the parts of a Security are kept.
type Files struct {
	// Certificate and Key are the listener's own, CA is what clients' certificates are checked against, Token holds the token.
	Certificate, Key, CA, Token string
}

// what the files belong to, in errors.
const thisAPI = "Kuscia's API"

// LoadSecurity reads what a protocol takes. A token file that does not exist is made.
func LoadSecurity(protocol Protocol, files Files) (Security, error) {
	if protocol == NOTLS {
		return Security{}, nil
	}
	ca := ""
	if protocol == MTLS {
		ca = files.CA
	}
	config, err := auth.LoadTLS(thisAPI, files.Certificate, files.Key, ca, tls.RequireAndVerifyClientCert)
	if err != nil {
		return Security{}, err
	}
	token, err := auth.LoadToken(thisAPI, files.Token)
	return Security{TLS: config, Token: token}, err
}
