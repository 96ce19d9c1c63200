package configs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
)

// Options name the sources of a configuration.
type Options struct {
	// File is the config file and must exist. If empty, it is the value of --config, or else
	// [DefaultFile] if that exists.
	File string
	// DropInDir is the directory of *.conf files and must exist. If empty, it is the value of
	// --config-dir, or else [DefaultDropInDir] if that exists.
	DropInDir string
	// Flags is a parsed flag set of [AddFlags]; nil means that no flags were given.
	Flags *pflag.FlagSet
}

// Load reads, merges, defaults and validates the configuration.
//
// It returns warnings, also together with an error: unknown fields (ignored, as in the kubelet),
// keys that occur twice (the last one counts) and settings without effect. The error for wrong
// values lists each as "ORIGIN: PATH: MESSAGE"; see [FieldError]. A relative path in a file starts
// at the directory of that file, and on the command line at the working directory.
func Load(o Options) (*Config, []Warning, error) {
	flags := flagsGiven(o.Flags)
	files, err := configFiles(o, flags)
	if err != nil {
		return nil, nil, err
	}
	r := &report{origins: origins{}}
	merged := layers{}
	for _, file := range files {
		docs, err := readDocuments(file)
		if err != nil {
			return nil, r.warnings, err
		}
		for _, doc := range docs {
			merged.add(doc, r.origins)
			for _, path := range doc.twice {
				r.warnings = append(r.warnings, Warning{
					Origin:  doc.origin(path),
					Path:    path,
					Message: "the key is given twice, the last one counts",
				})
			}
		}
	}
	flags.lay(merged, r)

	c := &Config{origins: r.origins, flagz: flagzOf(o.Flags), Flags: flags.plain(r)}
	decode(kubeletDoc, merged[kubeletDoc], &c.Kubelet, r)
	decode(berthDoc, merged[berthDoc], &c.Berth, r)
	if len(r.errs) > 0 {
		return nil, sorted(r.warnings), r.err()
	}
	setKubeletDefaults(&c.Kubelet)
	if !c.IsSet("staticPodPath") {
		c.Kubelet.StaticPodPath = DefaultStaticPodPath
	}
	c.Berth.setDefaults()
	c.Berth.Logs.setDefaults(&c.Kubelet)
	c.Berth.CrashLoopBackOff.setDefaults(c)
	flags.checkPlain(c.Flags, r)
	validateKubelet(&c.Kubelet, r)
	validateBerth(&c.Berth, r)
	warnWithoutEffect(c, r)
	warnWithoutRuntime(c, r)
	if len(r.errs) > 0 {
		return nil, sorted(r.warnings), r.err()
	}
	return c, sorted(r.warnings), nil
}

func sorted(warnings []Warning) []Warning {
	slices.SortStableFunc(warnings, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Path, b.Path))
	})
	return warnings
}

// configFiles returns the files to read, in order. A file or directory that the user named must
// exist; a default need not exist.
func configFiles(o Options, flags given) ([]string, error) {
	file, err := flags.path("config")
	if err != nil {
		return nil, err
	}
	dir, err := flags.path("config-dir")
	if err != nil {
		return nil, err
	}
	_, fileNamed := flags["config"]
	_, dirNamed := flags["config-dir"]
	if o.File != "" {
		file, fileNamed = o.File, true
	}
	if o.DropInDir != "" {
		dir, dirNamed = o.DropInDir, true
	}
	var files []string
	if file != "" {
		_, err := os.Stat(file)
		switch {
		case err == nil:
			files = append(files, file)
		case fileNamed || !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("read config file: %w", err)
		}
	}
	if dir == "" {
		return files, nil
	}
	dropIns, err := dropInFiles(dir)
	if err != nil && (dirNamed || !errors.Is(err, fs.ErrNotExist)) {
		return nil, fmt.Errorf("read drop-in directory: %w", err)
	}
	return append(files, dropIns...), nil
}

// dropInFiles returns the *.conf files below dir in the order of their paths, as the kubelet does.
// dir may be a symbolic link to a directory.
func dropInFiles(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a directory", dir))
	}
	var files []string
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return err
	})
	return files, err
}
