package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/berthd/berth/apiserver/files"
)

// writeFile replaces a file, also what a process left of it that was killed meanwhile. Only the
// owner may read it.
func writeFile(path string, content []byte) error {
	if err := files.RemoveLeftovers(path); err != nil {
		return err
	}
	return files.Replace(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err //nolint:wrapcheck // Replace says which file
	})
}

// closeKeys lets only the owner read and write the files that have keys, and logs which of them
// others could. It follows no link: what is elsewhere is somebody else's.
func closeKeys(dataDir, keys string) error {
	entries, err := os.ReadDir(keys)
	if err != nil {
		return fmt.Errorf("look for keys: %w", err)
	}
	files := []string{adminKubeconfig(dataDir), nodeKubeconfig(dataDir)}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".key" || ext == ".pem" {
			files = append(files, filepath.Join(keys, e.Name()))
		}
	}
	for _, path := range files {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look who may read a key: %w", err)
		}
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
			continue
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return fmt.Errorf("close a key to others: %w", err)
		}
		klog.InfoS("Others could use a file with a key: it is its owner's alone again", "file", path,
			"mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
	return nil
}

// encodeKey returns a key as PEM in the form "EC PRIVATE KEY", which every client reads.
func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// readPair reads a certificate and its key from two files, which may be the same one.
func readPair(certFile, keyFile string) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("the key in %s cannot sign", keyFile)
	}
	return pair.Leaf, signer, nil
}

// exists says whether there is a file of that name.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
